#include "controller/cluster/membership.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/proto_time.h"
#include "base/str_cat.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr int kMaxFormerIncarnations = 8;

bool GoodName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                  c == '-';
         });
}

absl::Status CheckRequest(const cluster::v1::RegisterRequest& request) {
  if (!GoodName(request.worker())) {
    return InvalidArgument("worker: must be 1 to ", kMaxNameBytes,
                           " letters, digits, '.', '_' and '-'");
  }
  if (request.role() < cluster::v1::ROLE_ROLLOUT || request.role() > cluster::v1::ROLE_TRAINER) {
    return InvalidArgument("role: must be rollout, reward, env or trainer");
  }
  if (request.incarnation().empty() || request.incarnation().size() > kMaxNameBytes) {
    return InvalidArgument("incarnation: must have 1 to ", kMaxNameBytes, " bytes");
  }
  if (!request.pool().empty() && !GoodName(request.pool())) {
    return InvalidArgument("pool: must be letters, digits, '.', '_' and '-'");
  }
  if (!request.site().empty() && !GoodName(request.site())) {
    return InvalidArgument("site: must be letters, digits, '.', '_' and '-'; set --site");
  }
  if (!request.engine().empty() && !GoodName(request.engine())) {
    return InvalidArgument("engine: must be letters, digits, '.', '_' and '-'");
  }
  if (request.address().size() > 512 || request.http_address().size() > 512) {
    return InvalidArgument("address: must have at most 512 bytes");
  }
  return absl::OkStatus();
}

}  // namespace

std::string LeaseName(const std::string& worker, int64_t epoch) {
  return StrCat(worker, "#", epoch);
}

Membership::Membership(MembershipOptions options, const cluster::v1::ClusterRecord& stored,
                       absl::Time now)
    : options_(options),
      last_epoch_(stored.last_epoch()),
      asked_(now),
      grace_until_(now + std::max(options.rejoin_grace, options.lost_after)) {
  for (const cluster::v1::WorkerRecord& record : stored.workers()) {
    Member& member = members_[record.name()];
    member.record = record;
    member.last_seen = now;
    last_epoch_ = std::max(last_epoch_, record.epoch());
  }
}

absl::StatusOr<Registration> Membership::PlanRegister(const cluster::v1::RegisterRequest& request,
                                                      absl::Time now) const {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  Registration plan;
  plan.last_epoch = last_epoch_;
  cluster::v1::WorkerRecord& record = plan.record;
  record.set_name(request.worker());
  record.set_role(request.role());
  record.set_pool(request.role() != cluster::v1::ROLE_ROLLOUT ? ""
                  : request.pool().empty()                    ? "default"
                                                              : request.pool());
  if (request.role() == cluster::v1::ROLE_ROLLOUT) record.set_engine(request.engine());
  record.set_incarnation(request.incarnation());
  record.set_address(request.address());
  record.set_http_address(request.http_address());
  record.set_host(request.host());
  record.set_site(request.site());
  record.set_version(request.version());
  *record.mutable_changed() = ToTimestamp(now);
  const auto known = members_.find(request.worker());
  if (known == members_.end()) {
    const auto live = std::count_if(members_.begin(), members_.end(),
                                    [](const auto& entry) { return !entry.second.record.lost(); });
    if (static_cast<size_t>(live) >= options_.max_workers) {
      return ResourceExhausted("the cluster has ", live, " workers, which is the maximum");
    }
    plan.reason = "joins";
  } else {
    const cluster::v1::WorkerRecord& former = known->second.record;
    const bool same = former.incarnation() == request.incarnation();
    record.set_restarts(former.restarts() + (same ? 0 : 1));
    if (same && !former.lost() && former.role() == record.role()) {
      plan.confirmed = true;
      plan.reason = "reconnected and keeps its epoch";
      record.set_epoch(former.epoch());
      *record.mutable_former_incarnations() = former.former_incarnations();
      return plan;
    }
    const auto& formers = former.former_incarnations();
    if (!same && !former.lost() &&
        std::find(formers.begin(), formers.end(), request.incarnation()) != formers.end()) {
      return StatusOf(absl::StatusCode::kAlreadyExists, "worker ", request.worker(),
                      ": a newer process has taken the name; give every worker a unique name");
    }
    record.mutable_former_incarnations()->CopyFrom(formers);
    if (!same) record.add_former_incarnations(former.incarnation());
    while (record.former_incarnations_size() > kMaxFormerIncarnations) {
      record.mutable_former_incarnations()->erase(record.former_incarnations().begin());
    }
    plan.reason =
        same ? StrCat("reconnected after it was lost in epoch ", former.epoch())
             : StrCat("a new process takes the name; epoch ", former.epoch(), " is fenced");
  }
  record.set_epoch(++plan.last_epoch);
  return plan;
}

void Membership::Register(const Registration& registration, absl::Time now) {
  last_epoch_ = std::max(last_epoch_, registration.last_epoch);
  Member& member = members_[registration.record.name()];
  member.record = registration.record;
  member.last_seen = now;
  if (!registration.confirmed) {
    member.status.Clear();
    member.connected = false;
  }
}

absl::Status Membership::OnStatus(const cluster::v1::WorkerStatus& status, absl::Time now) {
  const auto found = members_.find(status.worker());
  if (found == members_.end()) {
    return FailedPrecondition("worker ", status.worker(), " is not registered; register again");
  }
  Member& member = found->second;
  if (member.record.epoch() != status.epoch() || member.record.lost()) {
    return FailedPrecondition("epoch ", status.epoch(), " of worker ", status.worker(),
                              " is fenced; register again");
  }
  member.last_seen = now;
  member.connected = true;
  member.status = status;
  member.status.clear_log();
  return absl::OkStatus();
}

std::vector<LostWorker> Membership::FindLost(absl::Time now) {
  if (now - std::exchange(asked_, now) > options_.lost_after / 2) {
    grace_until_ = std::max(grace_until_, now + options_.lost_after);
  }
  std::vector<LostWorker> lost;
  if (now < grace_until_) return lost;
  for (const auto& [name, member] : members_) {
    const absl::Duration silent = now - member.last_seen;
    if (member.record.lost()) continue;
    if (member.status.refused_worker() == LeaseName(name, member.record.epoch())) {
      lost.push_back({name, member.record.epoch(), "the datastore refuses its name"});
      continue;
    }
    if (silent < options_.lost_after) continue;
    lost.push_back(
        {name, member.record.epoch(),
         StrCat("silent for ", absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(10))))});
  }
  return lost;
}

void Membership::MarkLost(const LostWorker& lost, absl::Time now) {
  const auto found = members_.find(lost.name);
  if (found == members_.end() || found->second.record.epoch() != lost.epoch) return;
  Member& member = found->second;
  member.record.set_lost(true);
  member.record.set_lost_reason(lost.reason);
  *member.record.mutable_changed() = ToTimestamp(now);
  member.connected = false;
  member.status.Clear();
}

void Membership::Remove(const std::string& name, int64_t epoch) {
  const auto found = members_.find(name);
  if (found != members_.end() && found->second.record.epoch() == epoch) members_.erase(found);
}

std::vector<std::string> Membership::FindForgettable(absl::Time now) const {
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) {
    if (!member.record.lost()) continue;
    if (now - FromTimestamp(member.record.changed()) > options_.forget_after) names.push_back(name);
  }
  return names;
}

void Membership::Forget(const std::string& name) {
  const auto found = members_.find(name);
  if (found != members_.end() && found->second.record.lost()) members_.erase(found);
}

void Membership::Store(cluster::v1::ClusterRecord& record) const {
  record.set_last_epoch(last_epoch_);
  record.clear_workers();
  for (const auto& [name, member] : members_) *record.add_workers() = member.record;
}

}  // namespace freshet
