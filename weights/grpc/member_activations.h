#ifndef FRESHET_WEIGHTS_GRPC_MEMBER_ACTIVATIONS_H_
#define FRESHET_WEIGHTS_GRPC_MEMBER_ACTIVATIONS_H_

#include <functional>
#include <map>
#include <memory>
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

  // `member` holds the version. Does not block. Without effect for a member that was told, and
  // during and after Await.
  void Start(const WeightMember& member) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the answers of the members that were told, by worker; `departed` as for MemberCalls.
  std::map<std::string, MemberAnswer> Await(const std::function<bool(const std::string&)>& departed)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string job_;
  const CommitReceipt receipt_;
  Mutex mu_;
  MemberCalls calls_;                                      // with mu_ until it is closed
  std::vector<std::string> started_ ABSL_GUARDED_BY(mu_);  // in the order of the calls
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_MEMBER_ACTIVATIONS_H_
