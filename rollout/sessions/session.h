#ifndef FRESHET_ROLLOUT_SESSIONS_SESSION_H_
#define FRESHET_ROLLOUT_SESSIONS_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "datastore/trajectory.h"
#include "rollout/engine/inference_engine.h"
#include "text/tokenizer.h"

namespace freshet {

struct SessionOptions {
  Lane lane = Lane::kRollout;
  uint64_t seed = 0;  // with ordinal and sample_index, the keys of the random numbers
  int64_t ordinal = 0;
  int32_t sample_index = 0;
  // Of every request. max_new_tokens bounds all tokens of a conversation, with its first prompt.
  SamplingParams sampling;
  // 1: every request must append to the first one. Otherwise a request that appends to none begins
  // another conversation.
  int32_t max_conversations = 1;
  int32_t max_requests = 1000;
  int32_t max_repeats = 3;  // of one answer; each is in memory until its client has read it
};

// A request of a session.
struct SessionRequest {
  bool chat = false;
  ChatRequest conversation;           // of a chat
  std::string text;                   // of a completion: the prompt, or
  std::vector<int32_t> ids;           // its ids
  std::optional<int32_t> max_tokens;  // absent: what the conversation has left
  std::vector<int32_t> stop_ids;      // in addition to those of the session
  std::vector<std::string> stop;      // likewise
  int32_t top_logprobs = 0;
  std::string digest;  // of all that the client sent; "": unknown
};

// What to generate for a request.
struct SessionTurn {
  std::vector<int32_t> prompt_ids;  // everything before the answer
  GenerationRequest generation;     // without id and callbacks
  // The recorded answer, if the request is the latest answered one again. Nothing is generated:
  // of `generation` only sampling.stop_ids is set, and no request is open.
  std::vector<GeneratedToken> repeated = {};
};

// What a session has recorded.
struct SessionRecord {
  // The whole sequence from the first token of the first prompt on; empty if nothing was sampled.
  // Sampled tokens have loss mask 1, all others 0. finish is kNone. Several conversations are its
  // segments, in the order in which their first request was answered.
  Response response;
  int32_t requests = 0;  // answered
  // A request was cut off or refused because the conversation's tokens, or the session's
  // conversations, were used; with several conversations: the latest request was.
  bool exhausted = false;
  absl::Status engine_error;  // that ended the latest request; OK: none did
};

// Records conversations over several requests, one at a time. Sampled tokens are kept as they were
// sampled: a later request must repeat what was said in a conversation and append to it, and only
// what it appends is tokenized. A request that fails or is cancelled leaves no trace. One with the
// digest of the latest answered request gets its answer again, which may have been lost on its way.
// A later conversation has random numbers of its own, by its number.
// Thread-safe.
class Session {
 public:
  // The tokenizer must outlive the session.
  Session(SessionOptions options, const Tokenizer& tokenizer);

  // Gives the ids of a request's whole prompt.
  using FirstPrompt = absl::FunctionRef<absl::StatusOr<std::vector<int32_t>>()>;

  // Starts a request. `first_prompt` is called if it begins a conversation. The request is open
  // until End, unless it repeats the latest one. Returns:
  //   ABORTED: another request is open.
  //   INVALID_ARGUMENT: it appends to no conversation and is one too many, its tokens leave no room
  //   in the conversation, or it is beyond max_requests or max_repeats.
  //   UNAUTHENTICATED: the session has ended.
  //   Others: as EncodeAfter and `first_prompt`.
  absl::StatusOr<SessionTurn> Begin(SessionRequest request, FirstPrompt first_prompt)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Adds the next token of the open request.
  void Add(const GeneratedToken& token) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the open request. `answer`, if it succeeded: the message as JSON, or the completed text.
  void End(const absl::Status& status, std::string answer) ABSL_LOCKS_EXCLUDED(mu_);

  // Sets what to call, once, if the session ends while the open request runs: Close calls it, or
  // OnClosed if the session has already ended. End drops it. It must not call the session.
  void OnClosed(std::function<void()> closed) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the session; an open request is no longer recorded, and the function of OnClosed is
  // called. Idempotent.
  SessionRecord Close() ABSL_LOCKS_EXCLUDED(mu_);

  // Why the requests of an ended session fail.
  static absl::Status Ended();

 private:
  // What a conversation has so far, which never changes.
  struct Recorded {
    SessionRequest latest;               // answered request
    std::string answer;                  // to it
    std::vector<GeneratedToken> tokens;  // of the answer
    std::vector<int32_t> prompt;         // of the first request
    Response after;                      // everything after it
  };
  // All conversations.
  struct History {
    std::vector<std::shared_ptr<const Recorded>> conversations;
    size_t latest = 0;     // that of the latest answered request
    int32_t requests = 0;  // answered
  };
  struct Open {
    SessionRequest request;
    size_t conversation = 0;        // its number, that of the next one if the request begins it
    std::vector<int32_t> prompt;    // of the first request
    std::vector<int32_t> appended;  // ids without loss before the answer
    int32_t limit = 0;              // tokens of the answer
    bool limited = false;           // by the conversation
    std::vector<GeneratedToken> tokens = {};
  };

  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static absl::Status CheckContinues(const Recorded& recorded, const SessionRequest& request);
  // The number of the conversation that `request` appends to, or of the one that it begins.
  absl::StatusOr<size_t> Choose(const History& history, const SessionRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The ids that `request` appends to the recorded ones.
  absl::StatusOr<std::vector<int32_t>> Appended(const Recorded& recorded,
                                                const SessionRequest& request) const;
  absl::StatusOr<Open> Plan(const History& history, SessionRequest request,
                            FirstPrompt first_prompt) ABSL_LOCKS_EXCLUDED(mu_);
  void SetExhausted() ABSL_LOCKS_EXCLUDED(mu_);
  SessionTurn MakeTurn(const Recorded* recorded, const Open& open) const;
  SessionTurn Repeat(const Recorded& recorded) const;
  SamplingParams Sampling(const SessionRequest& request, int32_t max_new_tokens) const;

  const SessionOptions options_;
  const Tokenizer& tokenizer_;

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;  // a request is open, or about to be
  std::optional<Open> open_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_closed_ ABSL_GUARDED_BY(mu_);  // of the open request
  History history_ ABSL_GUARDED_BY(mu_);
  bool exhausted_ ABSL_GUARDED_BY(mu_) = false;
  int32_t repeats_ ABSL_GUARDED_BY(mu_) = 0;  // of the latest answer
  absl::Status engine_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_SESSION_H_
