#include "controller/service/controller_metrics.h"

#include <algorithm>
#include <array>

#include "controller/jobs/job_record.h"
#include "controller/jobs/watchdog.h"

namespace freshet {
namespace {

prometheus::Family<prometheus::Gauge>& GaugeFamily(prometheus::Registry& registry, const char* name,
                                                   const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry,
                                                       const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

constexpr std::array kJobStates = {job::v1::JOB_STATE_PENDING,   job::v1::JOB_STATE_STARTING,
                                   job::v1::JOB_STATE_RUNNING,   job::v1::JOB_STATE_PAUSED,
                                   job::v1::JOB_STATE_SUCCEEDED, job::v1::JOB_STATE_FAILED,
                                   job::v1::JOB_STATE_CANCELLED};
constexpr std::array kRoles = {cluster::v1::ROLE_ROLLOUT, cluster::v1::ROLE_REWARD,
                               cluster::v1::ROLE_ENV, cluster::v1::ROLE_TRAINER};
constexpr std::array kWorkerStates = {"joining", "ready", "draining", "lost"};

const char* StateOf(const Member& member) {
  if (member.record.lost()) return "lost";
  if (member.status.draining()) return "draining";
  return member.connected ? "ready" : "joining";
}

}  // namespace

ControllerMetrics::ControllerMetrics(std::shared_ptr<prometheus::Registry> registry,
                                     const std::string& version,
                                     std::function<void(const absl::Status&)> on_datastore)
    : registry_(std::move(registry)),
      on_datastore_(std::move(on_datastore)),
      leader_(GaugeFamily(*registry_, "freshet_controller_leading",
                          "1 while this controller leads the cluster, else 0.")
                  .Add({})),
      datastore_up_(
          GaugeFamily(*registry_, "freshet_datastore_up", "1 while the datastore answers, else 0.")
              .Add({})),
      job_state_(GaugeFamily(*registry_, "freshet_job_state",
                             "1 for the state that a job is in, 0 for the others.")),
      job_info_(GaugeFamily(*registry_, "freshet_job_info", "Names of active jobs; always 1.")),
      groups_(GaugeFamily(*registry_, "freshet_buffer_groups",
                          "Prompt groups in the datastore now, by state.")),
      outstanding_(GaugeFamily(*registry_, "freshet_outstanding_groups",
                               "Prompt groups that count against the staleness bound.")),
      capacity_used_(GaugeFamily(*registry_, "freshet_buffer_used_groups",
                                 "Prompt groups that count against the store's capacity.")),
      entered_(CounterFamily(*registry_, "freshet_groups_entered_total",
                             "Prompt groups that entered a state.")),
      state_seconds_(CounterFamily(*registry_, "freshet_group_state_seconds_total",
                                   "Seconds that prompt groups spent in a state, over stays that "
                                   "ended; divided by the groups: their age.")),
      ended_(CounterFamily(*registry_, "freshet_groups_ended_total",
                           "Prompt groups that ended untrained, by reason.")),
      leases_expired_(CounterFamily(*registry_, "freshet_leases_expired_total",
                                    "Leases that ran out or were revoked.")),
      bound_(GaugeFamily(*registry_, "freshet_staleness_bound_versions",
                         "Staleness bound of the job, in policy versions.")),
      version_(GaugeFamily(*registry_, "freshet_committed_version",
                           "Policy version that the datastore has committed.")),
      last_step_(GaugeFamily(*registry_, "freshet_last_step_timestamp_seconds",
                             "Unix time at which the last committed step was seen; 0 before.")),
      blocking_(GaugeFamily(*registry_, "freshet_job_blocking_edge",
                            "1 for the edge on which a stalled job blocks, 0 for the others.")),
      stalled_seconds_(GaugeFamily(*registry_, "freshet_job_stalled_seconds",
                                   "For how long a stalled job has made no progress, else 0.")),
      skipped_(CounterFamily(*registry_, "freshet_evaluations_skipped_total",
                             "Evaluations that were due while another one ran.")),
      workers_(GaugeFamily(*registry_, "freshet_workers", "Workers by role and state.")),
      lost_(CounterFamily(*registry_, "freshet_workers_lost_total",
                          "Workers that were declared lost, by role.")) {
  GaugeFamily(*registry_, "freshet_build_info", "Version of the program; always 1.")
      .Add({{"role", "controller"}, {"version", version}})
      .Set(1);
  for (const auto role : kRoles) lost_.Add({{"role", RoleName(role)}});
  OnWorkers({});
}

void ControllerMetrics::OnDatastore(const absl::Status& status) {
  datastore_up_.Set(status.ok() ? 1 : 0);
  if (on_datastore_) on_datastore_(status);
}

void ControllerMetrics::OnLeading(bool leading) {
  leader_.Set(leading ? 1 : 0);
  if (leading) return;
  std::vector<std::string> jobs;
  {
    MutexLock lock(mu_);
    for (const auto& [job, series] : series_) jobs.push_back(job);
  }
  for (const std::string& job : jobs) OnJobGone(job);
  OnWorkers({});
}

void ControllerMetrics::Set(const std::string& job, Gauges& family, const char* label,
                            const std::string& value, double number) {
  prometheus::Gauge*& gauge = series_[job].gauges[{&family, value}];
  if (gauge == nullptr) {
    prometheus::Labels labels = {{"job", job}};
    if (*label != '\0') labels[label] = value;
    gauge = &family.Add(labels);
  }
  gauge->Set(number);
}

void ControllerMetrics::Raise(const std::string& job, Counters& family, const char* label,
                              const std::string& value, double number) {
  prometheus::Counter*& counter = series_[job].counters[{&family, value}];
  if (counter == nullptr) {
    prometheus::Labels labels = {{"job", job}};
    if (*label != '\0') labels[label] = value;
    counter = &family.Add(labels);
  }
  const double growth = number - counter->Value();
  if (growth > 0) counter->Increment(growth);
}

void ControllerMetrics::OnJob(const JobGauges& gauges) {
  MutexLock lock(mu_);
  const std::string& job = gauges.id;
  for (const auto state : kJobStates) {
    Set(job, job_state_, "state", StateName(state), state == gauges.state ? 1 : 0);
  }
  Set(job, job_info_, "name", gauges.name, 1);
  Set(job, bound_, "", "", static_cast<double>(gauges.staleness_bound));
  Set(job, last_step_, "", "",
      gauges.last_step == absl::InfinitePast()
          ? 0
          : absl::ToDoubleSeconds(gauges.last_step - absl::UnixEpoch()));
  for (const char* edge : kBlockingEdges) {
    Set(job, blocking_, "edge", edge, gauges.blocking_edge == edge ? 1 : 0);
  }
  Set(job, stalled_seconds_, "", "", absl::ToDoubleSeconds(gauges.stalled_for));
  Raise(job, skipped_, "", "", static_cast<double>(gauges.evaluations_skipped));
  if (gauges.has_stats) SetStats(gauges);
}

void ControllerMetrics::SetStats(const JobGauges& gauges) {
  const std::string& job = gauges.id;
  const StoreStats& stats = gauges.stats;
  for (int i = 0; i < kNumGroupStates; ++i) {
    const char* state = Name(static_cast<GroupState>(i));
    Set(job, groups_, "state", state, static_cast<double>(stats.groups[i]));
    Raise(job, entered_, "state", state, static_cast<double>(stats.transitions[i]));
    Raise(job, state_seconds_, "state", state, absl::ToDoubleSeconds(stats.time_in_state[i]));
  }
  Set(job, outstanding_, "", "", static_cast<double>(stats.outstanding));
  Set(job, capacity_used_, "", "", static_cast<double>(stats.capacity_used));
  Set(job, version_, "", "", static_cast<double>(stats.committed_version));
  Raise(job, leases_expired_, "", "", static_cast<double>(stats.leases_expired));
  for (const auto& [reason, groups] : stats.ended_by_reason) {
    // What stands in brackets may be any text of a scorer: the label is what stands before.
    const std::string kind = reason.starts_with("dead(") ? "dead" : reason;
    double total = 0;
    for (const auto& [other, count] : stats.ended_by_reason) {
      const bool same = kind == "dead" ? other.starts_with("dead(") : other == reason;
      if (same) total += static_cast<double>(count);
    }
    Raise(job, ended_, "reason", kind, total);
  }
}

void ControllerMetrics::OnJobGone(const std::string& id) {
  MutexLock lock(mu_);
  const auto found = series_.find(id);
  if (found == series_.end()) return;
  for (const auto& [key, gauge] : found->second.gauges) key.first->Remove(gauge);
  for (const auto& [key, counter] : found->second.counters) key.first->Remove(counter);
  series_.erase(found);
}

void ControllerMetrics::OnWorkers(const std::vector<Member>& workers) {
  for (const auto role : kRoles) {
    for (const char* state : kWorkerStates) {
      const auto count = std::count_if(workers.begin(), workers.end(), [&](const Member& member) {
        return member.record.role() == role && std::string(StateOf(member)) == state;
      });
      workers_.Add({{"role", RoleName(role)}, {"state", state}}).Set(static_cast<double>(count));
    }
  }
}

void ControllerMetrics::OnWorkerLost(cluster::v1::Role role) {
  lost_.Add({{"role", RoleName(role)}}).Increment();
}

}  // namespace freshet
