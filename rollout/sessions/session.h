#ifndef FRESHET_ROLLOUT_SESSIONS_SESSION_H_
#define FRESHET_ROLLOUT_SESSIONS_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
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
#include "rollout/sessions/episode_limit.h"
#include "rollout/sessions/recorded_conversation.h"
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
  // Sampled tokens of all requests, with failed ones unless the engine failed them. At the limit
  // the open ones are cut off.
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
  int32_t max_requests = 1000;  // with those that failed after their first token
  int32_t max_repeats = 3;      // of one answer; each is in memory until its client has read it
};

// What to generate for a request.
struct SessionTurn {
  int64_t request = 0;              // the number of the open request
  std::vector<int32_t> prompt_ids;  // everything before the answer
  GenerationRequest generation;     // without id and callbacks
  // The recorded answer, if the request is a conversation's latest answered one again. Nothing is
  // generated: of `generation` only sampling.stop_ids is set, and no request is open.
  std::vector<GeneratedToken> repeated = {};
};

// What a session has recorded.
struct SessionRecord {
  // The whole sequence from the first token of the first prompt on; empty if nothing was sampled.
  // Sampled tokens have loss mask 1, all others 0. finish is kNone. Several conversations are its
  // segments, in the order of their numbers.
  Response response;
  int32_t requests = 0;  // answered
  // The limit that cut off or refused a request; absent: none. max_tokens always counts. With
  // several conversations, the other limits count only if they affected the request that began
  // last.
  std::optional<EpisodeLimit> limit;
  // Engine error of a request; OK if none, or if a request that began later was answered.
  absl::Status engine_error;
};

// Records conversations over several requests. Sampled tokens are kept as they were sampled: a
// later request must repeat what was said in a conversation and append to it, and only what it
// appends is tokenized. A request that fails or is cancelled is not recorded; the tokens that it
// sampled count towards max_tokens, unless the engine failed it (INTERNAL, UNAVAILABLE). One with
// the digest of a conversation's latest answered request gets its answer again, which may have been
// lost on its way.
//
// Several conversations have their requests at the same time, one each; a second request that
// continues the same conversation begins another one. A conversation's number is the lowest that is
// free when its first request begins, and is free again if that fails; a later one has random
// numbers of its own, by its number.
// Thread-safe.
class Session {
 public:
  // The tokenizer must outlive the session.
  Session(SessionOptions options, const Tokenizer& tokenizer);

  // Gives the ids of a request's whole prompt.
  using FirstPrompt = absl::FunctionRef<absl::StatusOr<std::vector<int32_t>>()>;

  // Starts a request. `first_prompt` is called if it begins a conversation. The request is open
  // until End, unless it repeats an answered one. Returns:
  //   ABORTED: with one conversation, another request is open. With several: the same request is
  //   open, or this one continues a conversation whose answer is about to be recorded.
  //   INVALID_ARGUMENT: it appends to no conversation and is one too many, its tokens leave no room
  //   in the conversation, or it is beyond max_tokens, max_requests or max_repeats.
  //   UNAUTHENTICATED: the session has ended.
  //   Others: as EncodeAfter and `first_prompt`.
  absl::StatusOr<SessionTurn> Begin(SessionRequest request, FirstPrompt first_prompt)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Adds the next token of an open request. False: max_tokens is reached, so the token is its last
  // one, with the finish kLength, and the caller ends the request. It may so be exceeded by a token
  // of each further open request.
  bool Add(int64_t request, const GeneratedToken& token) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends an open request. `answer`, if it succeeded: the message as JSON, or the completed text.
  void End(int64_t request, const absl::Status& status, std::string answer)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Sets what to call, once, if the session ends while the request is open: Close calls it, or
  // OnClosed if the session has already ended. End drops it. It must not call the session.
  void OnClosed(int64_t request, std::function<void()> closed) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the session; open requests are no longer recorded, and their functions of OnClosed are
  // called. Idempotent.
  SessionRecord Close() ABSL_LOCKS_EXCLUDED(mu_);

  // Why the requests of an ended session fail.
  static absl::Status Ended();

 private:
  struct Conversation {
    std::shared_ptr<const RecordedConversation> recorded;  // null: its first request is open
    bool open = false;                                     // it has an open request
    int32_t repeats = 0;                                   // of its latest answer
  };
  struct Open {
    std::shared_ptr<const SessionRequest> request;
    size_t conversation = 0;             // its number
    std::vector<int32_t> prompt = {};    // of the first request
    std::vector<int32_t> appended = {};  // ids without loss before the answer
    int32_t limit = 0;                   // tokens of the answer
    bool limited = false;                // if its finish is kLength: by the conversation
    bool cut = false;                    // likewise, by max_tokens
    std::vector<GeneratedToken> tokens = {};
    std::function<void()> on_closed = nullptr;
  };
  // What a request is planned with. Recorded conversations never change.
  struct View {
    // Those that a request may continue, by number.
    std::map<size_t, std::shared_ptr<const RecordedConversation>> free;
    size_t latest = 0;  // that of the latest answered request
    size_t count = 0;   // of all conversations
    // Requests whose answers are complete and about to be recorded.
    std::vector<std::shared_ptr<const SessionRequest>> ending;
    int64_t tokens_left = 0;  // of max_tokens
  };
  struct Plan {
    std::optional<size_t> conversation;                    // absent: it begins one
    std::shared_ptr<const RecordedConversation> recorded;  // null: likewise
    Open open;
    SessionTurn turn;
  };

  // Whether a request may begin now; OK if it repeats an answered one.
  absl::Status CheckMayBegin(const SessionRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Conversation* FindAnswered(const std::string& digest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  View MakeView() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The number of the conversation that `request` appends to; absent: it begins one.
  absl::StatusOr<std::optional<size_t>> Choose(const View& view, const SessionRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Plan> MakePlan(const View& view, std::shared_ptr<const SessionRequest> request,
                                FirstPrompt first_prompt) ABSL_LOCKS_EXCLUDED(mu_);
  // Opens the planned request; false: another one was faster, so that the plan is not valid.
  bool Commit(Plan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A request was refused because of a limit.
  void Refused(EpisodeLimit limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The outcome of a request, by its number.
  void SetLimit(int64_t request, std::optional<EpisodeLimit> limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetEngineError(int64_t request, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  SessionTurn MakeTurn(const RecordedConversation* recorded, const Open& open) const;
  SessionTurn Repeat(const RecordedConversation& recorded) const;
  SamplingParams Sampling(const SessionRequest& request, int32_t max_new_tokens) const;

  const SessionOptions options_;
  const Tokenizer& tokenizer_;

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<size_t, Conversation> conversations_ ABSL_GUARDED_BY(mu_);  // by number
  size_t latest_ ABSL_GUARDED_BY(mu_) = 0;  // conversation of the latest answered request
  std::map<int64_t, Open> open_ ABSL_GUARDED_BY(mu_);  // at most one per conversation
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;     // requests, with refused ones; the latest number
  int32_t answered_ ABSL_GUARDED_BY(mu_) = 0;  // requests
  int32_t failed_ ABSL_GUARDED_BY(mu_) = 0;    // requests that failed after their first token
  int64_t tokens_ ABSL_GUARDED_BY(mu_) = 0;    // that count towards max_tokens
  bool cut_ ABSL_GUARDED_BY(mu_) = false;      // a request was cut off or refused by max_tokens
  std::optional<EpisodeLimit> limit_ ABSL_GUARDED_BY(mu_);
  int64_t limit_of_ ABSL_GUARDED_BY(mu_) = 0;  // the request that limit_ is about
  absl::Status engine_error_ ABSL_GUARDED_BY(mu_);
  int64_t failed_before_ ABSL_GUARDED_BY(mu_) = 0;  // requests begun before engine_error_
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_SESSION_H_
