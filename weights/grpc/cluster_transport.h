#ifndef FRESHET_WEIGHTS_GRPC_CLUSTER_TRANSPORT_H_
#define FRESHET_WEIGHTS_GRPC_CLUSTER_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "collective/communicator_backend.h"
#include "weights/cuda/device_copies.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/cluster_members.h"
#include "weights/grpc/cluster_route.h"
#include "weights/grpc/event_count.h"
#include "weights/grpc/member_activations.h"
#include "weights/grpc/weight_broadcaster.h"
#include "weights/manifest.h"
#include "weights/weight_member.h"
#include "weights/weight_sync_observer.h"
#include "weights/weight_transport.h"

namespace freshet {

struct ClusterTransportOptions {
  std::string job;
  ClusterRoute route = ClusterRoute::kAuto;
  std::string host;                                        // runtime::HostId()
  std::string site = {};                                   // of the trainer
  std::shared_ptr<CommunicatorBackend> backend = nullptr;  // for kNccl and kGloo
  std::shared_ptr<DeviceCopies> device_copies = nullptr;   // for kCudaIpc; null: none
  int64_t piece_bytes = int64_t{64} << 20;                 // of a broadcast; at least a bucket
  // Maximum time to transfer one version; slower members are skipped. Absent: TransferTime of its
  // bytes.
  std::optional<absl::Duration> timeout = std::nullopt;
  // Chains in other sites get differences from the version committed before, if their first member
  // has it.
  bool delta = false;
  // A chain member that is silent for longer is skipped.
  absl::Duration silence_timeout = absl::Seconds(8);
  absl::Duration activate_timeout = absl::Seconds(5);
  // Interval between attempts to send the committed version to a member that missed it: doubles
  // from `first_retry` to `last_retry`. If the member refused it: `last_retry`.
  absl::Duration first_retry = absl::Milliseconds(500);
  absl::Duration last_retry = absl::Seconds(30);
};

// Carries versions from the trainer to the engines of a cluster, whose membership may change at any
// time. Publish sends to all members in parallel: over shared memory if possible, otherwise along
// one chain per site, or by one broadcast in the trainer's site. Each member gets the receipt as
// soon as it holds the version. Publish takes at most 1 s to cancel a background delivery, the
// timeouts of the version and of an activation, and 1 s; it does not wait for members that leave
// meanwhile. Later publications do not wait for a member that was unreachable; it is served in the
// background until it holds the committed version, like a member that joins between publications.
// If publications cancel that again and again, one of them serves the member.
// A member that refuses a version is offered it again at long intervals. Publish is called by one
// thread. All else is thread-safe.
class ClusterTransport final : public WeightTransport {
 public:
  // `observer` may be null.
  ClusterTransport(ClusterTransportOptions options, ChannelSource channels, const Clock& clock,
                   WeightSyncObserver* observer);
  ~ClusterTransport() override;

  // Replaces the members. Ignored unless `revision` is larger than all before.
  void SetMembers(int64_t revision, std::vector<WeightMember> members);

  int64_t Publish(const CommittedWeights& version) override;

  // The newest committed version, for the trainer's WeightService.
  std::optional<CommittedWeights> Committed() const;

 private:
  std::unique_ptr<WeightBroadcaster> MakeBroadcaster();
  absl::Duration Timeout(const Delivery& delivery) const;
  // Sends and activates a version, and records the results. Removes the members that do not hold it
  // from `delivery`, and returns how many are left.
  int64_t Serve(Delivery& delivery);
  // Sends a version to members. Like the functions below, returns an entry for each member, and
  // starts the activation of each as soon as its route reports that it holds the version. A
  // broadcast reports at its end.
  DeliveryOutcomes Deliver(const Delivery& delivery,
                           const std::shared_ptr<MemberActivations>& activations);
  // Its calls may end after it returns, so they share `activations`.
  DeliveryOutcomes SendShared(const Delivery& delivery,
                              const std::shared_ptr<MemberActivations>& activations,
                              const WeightArena& file, const std::vector<WeightMember>& members,
                              absl::Time deadline);
  // Sends along the chains of PlanRelay in parallel.
  DeliveryOutcomes SendRelay(const Delivery& delivery, MemberActivations& activations,
                             const std::vector<WeightMember>& members, absl::Time deadline);
  // Sends along one chain.
  DeliveryOutcomes SendChain(const Delivery& delivery, MemberActivations& activations,
                             const std::vector<WeightMember>& chain, absl::Time deadline);
  // The version from which a chain that begins with `first` may get differences.
  std::optional<WeightSnapshot> BaseFor(const Delivery& delivery, const WeightMember& first) const;
  // Broadcasts to `members`, and relays to those that had to be left out of it or are elsewhere.
  DeliveryOutcomes SendBroadcast(const Delivery& delivery, MemberActivations& activations,
                                 const std::vector<WeightMember>& members, absl::Time deadline);
  // Reports to the observer the times of members that now hold the published version.
  void Observe(const Delivery& delivery, const DeliveryOutcomes& outcomes) const;
  void RunCatchUp(std::stop_token stop);

  const ClusterTransportOptions options_;
  const ChannelSource channels_;
  const Clock& clock_;
  WeightSyncObserver* const observer_;
  const std::shared_ptr<EventCount> events_ = std::make_shared<EventCount>();
  ClusterMembers members_;
  bool no_group_logged_ = false;                    // publisher thread only
  std::string relay_reason_;                        // of publications; one thread at a time
  std::unique_ptr<WeightBroadcaster> broadcaster_;  // publisher thread only; may be null
  std::jthread catch_up_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_CLUSTER_TRANSPORT_H_
