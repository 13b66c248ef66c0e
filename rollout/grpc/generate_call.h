#ifndef FRESHET_ROLLOUT_GRPC_GENERATE_CALL_H_
#define FRESHET_ROLLOUT_GRPC_GENERATE_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "freshet/rollout/v1/rollout_service.grpc.pb.h"
#include "rollout/engine/inference_engine.h"
#include "text/tokenizer.h"

namespace freshet {

// What `request` asks for; `eos_ids` are the model's end tokens and `seed` is used if it has none.
// `tokenizer` must outlive the result. INVALID_ARGUMENT naming the field. Limits of the model are
// the engine's to check.
absl::StatusOr<GenerationRequest> ToGenerationRequest(const rollout::v1::GenerateRequest& request,
                                                      const Tokenizer& tokenizer,
                                                      const std::vector<int32_t>& eos_ids,
                                                      uint64_t seed);

// One Generate stream. Tokens that the caller has not taken yet wait in one message, which is
// bounded: a caller that stops reading never holds up the engine. Thread-safe.
class GenerateCall final : public grpc::ServerWriteReactor<rollout::v1::GenerateReply> {
 public:
  // The call keeps itself alive until it is done.
  static std::shared_ptr<GenerateCall> Open(int max_unread_tokens);

  // The next token. False: the stream has ended, or ends because too many are unread.
  bool Add(const GeneratedToken& token) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the stream after the tokens so far. The first call wins.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // `cancel` is called once when the caller is gone, even if that has already happened.
  void OnGone(std::function<void()> cancel) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit GenerateCall(int max_unread_tokens) : max_unread_tokens_(max_unread_tokens) {}
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone() override;
  // Starts the next write, or Finish.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int max_unread_tokens_;
  std::shared_ptr<GenerateCall> self_;
  rollout::v1::GenerateReply written_;  // by the write in progress
  Mutex mu_;
  rollout::v1::GenerateReply unread_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::function<void()> cancel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_GRPC_GENERATE_CALL_H_
