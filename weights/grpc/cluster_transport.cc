#include "weights/grpc/cluster_transport.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"
#include "freshet/weights/v1/weight_service.grpc.pb.h"
#include "weights/grpc/manifest_codec.h"
#include "weights/grpc/member_activations.h"
#include "weights/grpc/member_calls.h"
#include "weights/grpc/relay_sender.h"
#include "weights/relay_plan.h"
#include "weights/shm/memory_file.h"
#include "weights/transfer_time.h"

namespace freshet {
namespace {

// How long a publication waits for a background delivery that it cancelled.
constexpr absl::Duration kCallOff = absl::Seconds(1);
// Minimum bytes per second that an engine maps and verifies; one core does tens of times that.
constexpr size_t kSlowestVerify = size_t{128} << 20;

// Threads that send along chains and mostly wait for the network. Further chains wait for a free
// one.
constexpr int kMaxParallelChains = 128;

// Above this, the slowest member of a publication is logged.
constexpr absl::Duration kSlowMember = absl::Seconds(1);

}  // namespace

ClusterTransport::ClusterTransport(ClusterTransportOptions options, ChannelSource channels,
                                   const Clock& clock, WeightSyncObserver* observer)
    : options_(std::move(options)),
      channels_(std::move(channels)),
      clock_(clock),
      observer_(observer),
      members_({options_.first_retry, options_.last_retry}, clock, observer),
      broadcaster_(MakeBroadcaster()),
      catch_up_([this](std::stop_token stop) { RunCatchUp(std::move(stop)); }) {}

std::unique_ptr<WeightBroadcaster> ClusterTransport::MakeBroadcaster() {
  if (options_.backend == nullptr) return nullptr;
  BroadcasterOptions options;
  options.job = options_.job;
  options.backend_name = RouteName(options_.route);
  options.backend = options_.backend;
  options.silence_timeout = options_.silence_timeout;
  options.piece_bytes = options_.piece_bytes;
  options.retry = options_.last_retry;
  BroadcasterHooks hooks;
  if (observer_ != nullptr) {
    hooks.on_bytes = [this](int64_t bytes) { observer_->OnBytes(bytes); };
    hooks.on_group_failed = [this] { observer_->OnFailure("group"); };
  }
  return std::make_unique<WeightBroadcaster>(std::move(options), channels_, clock_, events_,
                                             std::move(hooks));
}

ClusterTransport::~ClusterTransport() {
  catch_up_.request_stop();
  members_.Stop();
  events_->Notify();
}

void ClusterTransport::SetMembers(int64_t revision, std::vector<WeightMember> members) {
  if (members_.Replace(revision, std::move(members))) events_->Notify();
}

std::optional<CommittedWeights> ClusterTransport::Committed() const { return members_.Committed(); }

int64_t ClusterTransport::Publish(const CommittedWeights& version) {
  const LogScope scope(options_.job);
  Delivery delivery{version, members_.BeginPublication()};
  events_->Notify();
  const absl::Time start = clock_.Now();
  for (absl::Duration left = kCallOff; left > absl::ZeroDuration();
       left = start + kCallOff - clock_.Now()) {
    const uint64_t seen = events_->count();
    if (!members_.catching_up()) break;
    events_->Await(seen, left);
  }
  if (options_.delta) delivery.former = members_.Committed();
  members_.Commit(version);
  const int64_t holders = Serve(delivery);
  members_.EndPublication();
  events_->Notify();
  return holders;
}

int64_t ClusterTransport::Serve(Delivery& delivery) {
  const auto departed = [&](const std::string& worker) {
    return members_.Departed(delivery, worker);
  };
  const absl::Time start = absl::Now();
  const auto activations = std::make_shared<MemberActivations>(
      options_.job, delivery.version.receipt, channels_, options_.activate_timeout, events_);
  DeliveryOutcomes outcomes = Deliver(delivery, activations);
  const absl::Duration transfer = absl::Now() - start;
  members_.Note(delivery, outcomes, /*activated=*/false);
  // An answer that came after its call was given up may have started the activation of others.
  const auto left_out = [&outcomes](const std::string& worker) {
    return !outcomes.at(worker).status.ok();
  };
  std::erase_if(delivery.members,
                [&](const WeightMember& member) { return left_out(member.worker); });
  const auto holders = static_cast<int64_t>(delivery.members.size());
  for (const WeightMember& member : delivery.members) activations->Start(member);
  absl::Duration longest;
  for (const MemberAnswer& answer : activations->Await(departed)) {
    if (left_out(answer.worker)) continue;
    outcomes[answer.worker].status = answer.status;
    outcomes[answer.worker].took = answer.ended - start;
    longest = std::max(longest, answer.took);
  }
  members_.Note(delivery, outcomes, /*activated=*/true);
  if (delivery.background) return holders;
  if (observer_ != nullptr) {
    observer_->OnPhase(WeightPhase::kTransfer, transfer);
    observer_->OnPhase(WeightPhase::kActivate, longest);
  }
  Observe(delivery, outcomes);
  return holders;
}

absl::Duration ClusterTransport::Timeout(const Delivery& delivery) const {
  return options_.timeout.value_or(
      std::min(TransferTime(delivery.manifest().total_bytes), kMaxTransferTime));
}

DeliveryOutcomes ClusterTransport::Deliver(const Delivery& delivery,
                                           const std::shared_ptr<MemberActivations>& activations) {
  const absl::Time deadline = clock_.Now() + Timeout(delivery);
  if (broadcaster_ != nullptr) {
    // Members are served one by one in the background, not by a group.
    return delivery.background ? SendRelay(delivery, *activations, delivery.members, deadline)
                               : SendBroadcast(delivery, *activations, delivery.members, deadline);
  }
  std::vector<WeightMember> shared;
  std::vector<WeightMember> relayed;
  for (const WeightMember& member : delivery.members) {
    const bool relay = options_.route == ClusterRoute::kRelay ||
                       (options_.route != ClusterRoute::kShm && members_.RelayOnly(member.worker));
    (relay ? relayed : shared).push_back(member);
  }
  DeliveryOutcomes outcomes;
  absl::StatusOr<WeightBytes> file = delivery.bytes();
  if (!shared.empty()) file = InMemoryFile(delivery.bytes());
  if (!file.ok()) {
    FRESHET_LOG(Warning) << "event=no_shared_memory reason=" << LogQuoted(Message(file.status()));
    if (options_.route == ClusterRoute::kShm) {
      for (const WeightMember& member : shared) outcomes[member.worker].status = file.status();
    } else {
      relayed.insert(relayed.end(), shared.begin(), shared.end());
    }
    shared.clear();
  }
  {
    std::jthread chain;
    if (!relayed.empty()) {
      chain =
          std::jthread([&] { outcomes = SendRelay(delivery, *activations, relayed, deadline); });
    }
    DeliveryOutcomes mapped;
    if (!shared.empty()) mapped = SendShared(delivery, activations, **file, shared, deadline);
    if (chain.joinable()) chain.join();
    outcomes.merge(mapped);
  }
  if (options_.route == ClusterRoute::kShm) return outcomes;
  // Members that turned out not to share memory form their own chain.
  std::vector<WeightMember> others;
  for (const WeightMember& member : shared) {
    const absl::Status& status = outcomes.at(member.worker).status;
    if (!absl::IsUnimplemented(status)) continue;
    FRESHET_LOG(Info) << "event=no_shared_memory member=" << member.worker
                      << " reason=" << LogQuoted(Message(status));
    others.push_back(member);
  }
  if (others.empty()) return outcomes;
  members_.SetRelayOnly(others);
  for (auto& [worker, outcome] : SendRelay(delivery, *activations, others, deadline)) {
    outcomes[worker] = std::move(outcome);
  }
  return outcomes;
}

DeliveryOutcomes ClusterTransport::SendShared(const Delivery& delivery,
                                              const std::shared_ptr<MemberActivations>& activations,
                                              const WeightArena& file,
                                              const std::vector<WeightMember>& members,
                                              absl::Time deadline) {
  const absl::Time start = clock_.Now();
  auto request = std::make_shared<weights::v1::PrepareSharedRequest>();
  request->set_job(options_.job);
  ManifestToProto(delivery.manifest(), *request->mutable_manifest());
  request->set_path(MemoryFilePath(file));
  request->set_host(options_.host);
  const absl::Duration most =
      options_.silence_timeout + absl::Seconds(1) * (file.size() / kSlowestVerify);
  if (options_.device_copies != nullptr) {
    const std::optional<DeviceOffer> offer = options_.device_copies->OfferOrLog(
        file, delivery.manifest().content_hash, start + std::min(most, (deadline - start) / 2));
    if (offer.has_value()) OfferToProto(*offer, *request->mutable_device_copy());
  }
  const absl::Duration before = clock_.Now() - start;
  // At least a second, though the copy may have taken the time: the bytes are there.
  const absl::Duration timeout =
      std::min(std::max(deadline - start - before, absl::Seconds(1)), most);
  std::vector<std::shared_ptr<weights::v1::PrepareReply>> replies(members.size());
  const std::vector<MemberAnswer> answers = CallMembers(
      members, channels_, timeout, events_,
      [&](const std::string& worker) { return members_.Departed(delivery, worker); },
      [&](size_t i, weights::v1::WeightService::Stub& stub, grpc::ClientContext* context,
          std::function<void(grpc::Status)> done) {
        auto reply = std::make_shared<weights::v1::PrepareReply>();
        replies[i] = reply;
        stub.async()->PrepareShared(context, request.get(), reply.get(),
                                    [request, reply, activations, member = members[i],
                                     done = std::move(done)](grpc::Status status) {
                                      if (status.ok()) activations->Start(member);
                                      done(std::move(status));
                                    });
      });
  DeliveryOutcomes outcomes;
  for (size_t i = 0; i < members.size(); ++i) {
    DeliveryOutcome outcome{answers[i].status, before + answers[i].took};
    if (outcome.status.ok() && replies[i]->device_copy()) {
      outcome.route = RouteName(ClusterRoute::kCudaIpc);
    }
    outcomes[members[i].worker] = std::move(outcome);
  }
  return outcomes;
}

DeliveryOutcomes ClusterTransport::SendBroadcast(const Delivery& delivery,
                                                 MemberActivations& activations,
                                                 const std::vector<WeightMember>& members,
                                                 absl::Time deadline) {
  const absl::Time start = clock_.Now();
  std::vector<WeightMember> group;
  std::vector<WeightMember> elsewhere;  // the relay serves them beside the broadcast
  for (const WeightMember& member : members) {
    const bool relay = member.site != options_.site || members_.RelayOnly(member.worker);
    (relay ? elsewhere : group).push_back(member);
  }
  if (group.empty() && !std::exchange(no_group_logged_, true)) {
    FRESHET_LOG(Warning) << "event=no_broadcast reason="
                         << LogQuoted(StrCat("no engine of the trainer's site '", options_.site,
                                             "' can take part; weights go by grpc_relay. Give the "
                                             "trainer and its engines the same --site"));
  }
  DeliveryOutcomes outcomes;  // of `elsewhere`
  std::jthread chains;
  if (!elsewhere.empty()) {
    chains =
        std::jthread([&] { outcomes = SendRelay(delivery, activations, elsewhere, deadline); });
  }
  const auto answers = broadcaster_->Send(
      delivery.version, group, deadline,
      [&](const std::string& worker) { return members_.Departed(delivery, worker); });
  for (const WeightMember& member : group) {
    const auto found = answers.find(member.worker);
    if (found != answers.end() && found->second.status.ok()) activations.Start(member);
  }
  if (chains.joinable()) chains.join();
  std::vector<WeightMember> relayed;  // that the broadcast has left out
  std::vector<WeightMember> unable;
  for (const WeightMember& member : group) {
    const auto found = answers.find(member.worker);
    if (found == answers.end()) {
      relayed.push_back(member);
    } else if (absl::IsUnimplemented(found->second.status) ||
               absl::IsPermissionDenied(found->second.status)) {
      FRESHET_LOG(Warning) << "event=no_broadcast member=" << member.worker
                           << " reason=" << LogQuoted(Message(found->second.status));
      unable.push_back(member);
    } else {
      outcomes[member.worker] = {found->second.status, found->second.took,
                                 RouteName(options_.route)};
    }
  }
  members_.SetRelayOnly(unable);
  relayed.insert(relayed.end(), unable.begin(), unable.end());
  if (relayed.empty()) return outcomes;
  const absl::Duration before = clock_.Now() - start;
  for (auto& [worker, outcome] : SendRelay(delivery, activations, relayed, deadline)) {
    outcome.took += before;
    outcomes[worker] = std::move(outcome);
  }
  return outcomes;
}

DeliveryOutcomes ClusterTransport::SendRelay(const Delivery& delivery,
                                             MemberActivations& activations,
                                             const std::vector<WeightMember>& members,
                                             absl::Time deadline) {
  const LogScope scope(options_.job);
  const RelayPlan plan = PlanRelay(members);
  const auto chains = static_cast<int>(plan.chains.size());
  if (chains > 1 && !delivery.background && plan.reason != relay_reason_) {
    relay_reason_ = plan.reason;
    FRESHET_LOG(Info) << "event=relay_plan reason=" << LogQuoted(plan.reason);
  }
  std::vector<DeliveryOutcomes> outcomes(plan.chains.size());
  ThreadPool threads(std::clamp(chains, 1, kMaxParallelChains));
  threads.For(chains, [&](int64_t i, int) {
    const auto chain = static_cast<size_t>(i);
    outcomes[chain] = SendChain(delivery, activations, plan.chains[chain], deadline);
  });
  DeliveryOutcomes all;
  for (DeliveryOutcomes& some : outcomes) all.merge(some);
  return all;
}

DeliveryOutcomes ClusterTransport::SendChain(const Delivery& delivery,
                                             MemberActivations& activations,
                                             const std::vector<WeightMember>& chain,
                                             absl::Time deadline) {
  const LogScope scope(options_.job);
  const absl::Time start = clock_.Now();
  DeliveryOutcomes outcomes;
  RelayHooks hooks;
  hooks.available = [&delivery]() -> absl::StatusOr<int64_t> {
    return delivery.manifest().total_bytes;
  };
  hooks.on_result = [&](const std::string& worker, const absl::Status& status) {
    if (status.ok()) activations.Start(*std::ranges::find(chain, worker, &WeightMember::worker));
    outcomes[worker] = {status, clock_.Now() - start, RouteName(ClusterRoute::kRelay)};
  };
  hooks.departed = [&](const std::string& worker) { return members_.Departed(delivery, worker); };
  if (observer_ != nullptr) {
    hooks.on_bytes = [this](int64_t bytes) { observer_->OnBytes(bytes); };
    hooks.on_delta = [this](int64_t bytes, int64_t sent) { observer_->OnDelta(bytes, sent); };
  }
  hooks.on_corrupt_delta = [&](const std::string& worker, const absl::Status& status) {
    members_.SetWholeOnly(worker);
    FRESHET_LOG(Warning) << "event=corrupt_delta member=" << worker
                         << " version=" << delivery.manifest().policy.version
                         << " reason=" << LogQuoted(Message(status));
  };
  RelaySender({options_.job, delivery.manifest(), delivery.bytes(), chain, deadline,
               options_.silence_timeout, BaseFor(delivery, chain.front())},
              std::move(hooks), channels_, clock_, events_)
      .Run();
  for (const WeightMember& member : chain) {
    outcomes.try_emplace(
        member.worker,
        DeliveryOutcome{absl::DeadlineExceededError("not reached before the publication deadline"),
                        clock_.Now() - start, RouteName(ClusterRoute::kRelay)});
  }
  return outcomes;
}

std::optional<WeightSnapshot> ClusterTransport::BaseFor(const Delivery& delivery,
                                                        const WeightMember& first) const {
  if (!options_.delta || first.site == options_.site || members_.WholeOnly(first.worker)) {
    return std::nullopt;
  }
  if (!delivery.former.has_value()) return std::nullopt;
  const WeightSnapshot& former = delivery.former->snapshot;
  if (former.manifest.total_bytes != delivery.manifest().total_bytes ||
      former.manifest.content_hash == delivery.manifest().content_hash) {
    return std::nullopt;
  }
  return former;
}

void ClusterTransport::Observe(const Delivery& delivery, const DeliveryOutcomes& outcomes) const {
  std::map<std::string, std::vector<absl::Duration>> by_route;
  const std::string* slowest = nullptr;
  absl::Duration longest = kSlowMember;
  for (const auto& [worker, outcome] : outcomes) {
    if (!outcome.status.ok()) continue;
    by_route[outcome.route].push_back(outcome.took);
    if (outcome.took <= longest) continue;
    slowest = &worker;
    longest = outcome.took;
  }
  if (slowest != nullptr) {
    FRESHET_LOG(Info) << "event=weights_slow member=" << *slowest
                      << " seconds=" << absl::ToDoubleSeconds(longest)
                      << " version=" << delivery.manifest().policy.version;
  }
  if (observer_ == nullptr) return;
  for (const auto& [route, took] : by_route) {
    observer_->OnMembers(options_.job, route.c_str(), took);
  }
}

void ClusterTransport::RunCatchUp(std::stop_token stop) {
  const LogScope scope(options_.job);
  while (true) {
    // In this order: the destructor requests the stop, then notifies.
    const uint64_t seen = events_->count();
    if (stop.stop_requested()) return;
    absl::Time next;
    std::optional<Delivery> delivery = members_.BeginCatchUp(next);
    if (!delivery.has_value()) {
      events_->Await(seen, next - clock_.Now());
      continue;
    }
    Serve(*delivery);
    members_.EndCatchUp();
    events_->Notify();
  }
}

}  // namespace freshet
