#ifndef FRESHET_WEIGHTS_GRPC_MEMBER_ACTIVATIONS_H_
#define FRESHET_WEIGHTS_GRPC_MEMBER_ACTIVATIONS_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/policy_version.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/event_count.h"
#include "weights/grpc/member_calls.h"
#include "weights/weight_member.h"

namespace freshet {

// Tells members that a version is committed, each as soon as it holds the version. Thread-safe.
class MemberActivations {
 public:
  // Each member gets `timeout` to answer.
  MemberActivations(std::string job, const CommitReceipt& receipt, ChannelSource channels,
                    absl::Duration timeout, std::shared_ptr<EventCount> events);

  // Sends the receipt to `member`, which holds the version. Does not wait for the answer. No effect
  // if it was sent before or Await has been called.
  void Start(const WeightMember& member) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the answers; `departed` as for MemberCalls.
  std::vector<MemberAnswer> Await(const std::function<bool(const std::string&)>& departed)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string job_;
  const CommitReceipt receipt_;
  MemberCalls calls_;
  Mutex mu_;
  std::set<std::string> started_ ABSL_GUARDED_BY(mu_);  // workers
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_MEMBER_ACTIVATIONS_H_
