#include "controller/api/controller_metrics.h"

#include <algorithm>
#include <array>

#include "controller/api/job_views.h"
#include "controller/jobs/plan/watchdog.h"
#include "controller/jobs/record/job_record.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

using metrics::CounterFamily;
using metrics::GaugeFamily;

constexpr std::array kJobStates = {job::v1::JOB_STATE_PENDING,   job::v1::JOB_STATE_STARTING,
                                   job::v1::JOB_STATE_RUNNING,   job::v1::JOB_STATE_PAUSED,
                                   job::v1::JOB_STATE_SUCCEEDED, job::v1::JOB_STATE_FAILED,
                                   job::v1::JOB_STATE_CANCELLED};
constexpr std::array kJobEnds = {job::v1::JOB_STATE_SUCCEEDED, job::v1::JOB_STATE_FAILED,
                                 job::v1::JOB_STATE_CANCELLED};
constexpr std::array kRoles = {cluster::v1::ROLE_ROLLOUT, cluster::v1::ROLE_REWARD,
                               cluster::v1::ROLE_ENV, cluster::v1::ROLE_TRAINER};
constexpr std::array kWorkerStates = {"joining", "ready", "draining", "lost"};

// Values of label `reason` of freshet_trajectories_dropped_total.
constexpr const char* kDropReasons[] = {"stale",     "error",     "filtered",
                                        "cancelled", "duplicate", "replaced"};

// Maps the store's label for the end of a group, such as "dropped(too_old)".
const char* DropReason(const std::string& label) {
  if (label == "dropped(too_old)" || label == "dead(too_slow)") return "stale";
  if (label == "dropped(orphaned)") return "cancelled";
  return label.starts_with("filtered(") ? "filtered" : "error";
}

// Bounds the number of series, because workers and jobs choose pool names.
constexpr size_t kMostPools = 100;

// Bytes of a sample besides its tokens (record and key), and per token (docs/operations.md,
// Memory).
constexpr double kSampleBytes = 150;
constexpr double kTokenBytes = 8;

// States whose samples are still to be trained on or kept for a redo.
constexpr GroupState kBuffered[] = {GroupState::kGenerated, GroupState::kScored, GroupState::kReady,
                                    GroupState::kClaimed, GroupState::kTrained};

// Samples of the groups in a state.
double SamplesIn(GroupState state, const StoreStats& stats, int64_t group_size) {
  const auto i = static_cast<size_t>(state);
  return static_cast<double>(stats.groups[i] * group_size - stats.skipped[i]);
}

double BufferBytes(const StoreStats& stats, int64_t group_size) {
  double samples = 0;
  for (const GroupState state : kBuffered) samples += SamplesIn(state, stats, group_size);
  const auto ended = static_cast<double>(stats.trained_samples + stats.discarded_samples);
  const auto tokens = static_cast<double>(stats.trained_tokens + stats.discarded_tokens);
  const double mean = ended > 0 ? tokens / ended : 0;
  return samples * (kSampleBytes + kTokenBytes * mean);
}

constexpr JobMetric kJobState{"freshet_job_state",
                              "1 for the state that a job is in, 0 for the others."};
constexpr JobMetric kJobInfo{"freshet_job_info", "Names of active jobs; always 1."};
constexpr JobMetric kGroups{"freshet_buffer_groups",
                            "Prompt groups in the datastore now, by state."};
constexpr JobMetric kOutstanding{"freshet_outstanding_groups",
                                 "Prompt groups that count against the staleness bound."};
constexpr JobMetric kEntered{"freshet_groups_entered_total", "Prompt groups that entered a state."};
constexpr JobMetric kStateSeconds{
    "freshet_group_state_seconds_total",
    "Total seconds that prompt groups spent in a state, over completed stays; "
    "divide by the number of groups for their mean age."};
constexpr JobMetric kEnded{"freshet_groups_ended_total",
                           "Prompt groups that ended untrained, by reason."};
constexpr JobMetric kTrajectories{"freshet_buffer_trajectories",
                                  "Samples of the prompt groups in the datastore now, by state."};
constexpr JobMetric kBytes{"freshet_buffer_bytes",
                           "Bytes of the finished samples that the datastore holds for training, "
                           "estimated from the mean length of those that ended."};
constexpr JobMetric kPending{"freshet_stream_pending_entries",
                             "Prompt groups that rollouts have leased and not finished yet."};
constexpr JobMetric kLag{"freshet_stream_lag_entries",
                         "Prompt groups that no rollout has leased yet."};
constexpr JobMetric kOldest{"freshet_buffer_oldest_timestamp_seconds",
                            "Unix time at which the oldest prompt group of a state entered it, "
                            "assuming FIFO order; 0 if there is none."};
constexpr JobMetric kQueued{
    "freshet_job_queue_entries",
    "Entries of a bounded queue of a job now: prompts that wait for a lease, "
    "groups in the store, groups that are generated."};
constexpr JobMetric kBounds{"freshet_job_queue_bound_entries",
                            "Capacity of a bounded queue of a job; further entries wait."};
constexpr JobMetric kLedgerBacklog{"freshet_ledger_rows",
                                   "Rows of the ledger that the datastore keeps."};
constexpr JobMetric kFilteredInARow{"freshet_filtered_in_a_row_groups",
                                    "Prompt groups filtered since the last one that was not."};
constexpr JobMetric kPooled{"freshet_pooled_successes", "Successes in the pool of replay."};
constexpr JobMetric kCalls{"freshet_reward_calls_total",
                           "Requests to the server of a reward component that has max_calls, "
                           "counted over all reward workers."};
constexpr JobMetric kMaxCalls{"freshet_reward_bound_calls",
                              "Calls that a component may send; the job fails if it needs more."};
constexpr JobMetric kSkippedSamples{
    "freshet_skipped_samples_total",
    "Samples that were not generated because most samples of their prompts "
    "succeed (adaptive_rollouts): group_size minus the group's samples."};
constexpr JobMetric kLimitedGroups{
    "freshet_limited_groups_total",
    "Groups whose samples were limited to a multiple of the longest success "
    "of their prompt (adaptive_rollouts)."};
constexpr JobMetric kAccuracy{"freshet_eval_accuracy_ratio",
                              "Result of the newest evaluation of a set."};
constexpr JobMetric kDropped{"freshet_trajectories_dropped_total",
                             "Samples that were not trained on, by reason."};
constexpr JobMetric kLengths{"freshet_response_tokens_total",
                             "Tokens of samples that were trained on or discarded; divide by "
                             "freshet_response_samples_total for the mean length."};
constexpr JobMetric kSamples{"freshet_response_samples_total",
                             "Samples that were trained on or discarded."};
constexpr JobMetric kLeasesExpired{"freshet_leases_expired_total",
                                   "Leases that ran out or were revoked."};
constexpr JobMetric kBound{"freshet_staleness_bound_versions",
                           "Staleness bound of the job, in policy versions."};
constexpr JobMetric kVersion{"freshet_committed_version",
                             "Policy version that the datastore has committed."};
constexpr JobMetric kLastStep{"freshet_last_step_timestamp_seconds",
                              "Unix time at which the newest committed step was seen; 0 before the "
                              "first one and after the job's last one."};
constexpr JobMetric kBlocking{"freshet_job_blocking_edge",
                              "1 for the edge on which a stalled job blocks, 0 for the others."};
constexpr JobMetric kStalledSeconds{"freshet_job_stalled_seconds",
                                    "Seconds since a stalled job's last progress, else 0."};
constexpr JobMetric kSkipped{"freshet_evaluations_skipped_total",
                             "Evaluations that were due while another one ran."};

prometheus::Labels LabelsOf(const std::string& job, const char* label, const std::string& value) {
  prometheus::Labels labels = {{"job", job}};
  if (*label != '\0') labels[label] = value;
  return labels;
}

}  // namespace

ControllerMetrics::ControllerMetrics(std::shared_ptr<prometheus::Registry> registry,
                                     std::function<void(const absl::Status&)> on_datastore)
    : registry_(std::move(registry)),
      on_datastore_(std::move(on_datastore)),
      leader_(GaugeFamily(*registry_, "freshet_controller_leading",
                          "1 while this controller leads the cluster, else 0.")
                  .Add({})),
      datastore_up_(
          GaugeFamily(*registry_, "freshet_datastore_up", "1 while the datastore answers, else 0.")
              .Add({})),
      jobs_ended_(CounterFamily(*registry_, "freshet_jobs_ended_total",
                                "Jobs that ended while this controller led, by final state; a "
                                "resumed job may end again.")),
      workers_(GaugeFamily(*registry_, "freshet_workers", "Workers by role and state.")),
      lost_(CounterFamily(*registry_, "freshet_workers_lost_total",
                          "Workers that were declared lost, by role.")),
      failed_(CounterFamily(*registry_, "freshet_work_failures_total",
                            "Failures of a worker's work for a job, by role.")),
      wanted_(GaugeFamily(*registry_, "freshet_rollout_wanted_replicas",
                          "Rollouts that a pool should have; the label says why.")),
      ready_(GaugeFamily(*registry_, "freshet_pool_ready_workers",
                         "Rollouts of a pool that are ready; of the controller that leads.")) {
  for (const auto role : kRoles) {
    lost_.Add({{"role", RoleName(role)}});
    failed_.Add({{"role", RoleName(role)}});
  }
  for (const auto state : kJobEnds) jobs_ended_.Add({{"state", StateName(state)}});
  OnWorkers({});
}

void ControllerMetrics::OnDatastore(const absl::Status& status) {
  datastore_up_.Set(status.ok() ? 1 : 0);
  if (on_datastore_) on_datastore_(status);
}

void ControllerMetrics::OnLeading(bool leading) {
  leader_.Set(leading ? 1 : 0);
  {
    MutexLock lock(mu_);
    leading_ = leading;
    if (leading) return;
    SetPools({});
    series_.clear();
  }
  OnWorkers({});
}

void ControllerMetrics::Set(const std::string& job, const JobMetric& metric, const char* label,
                            const std::string& value, double number) {
  const auto [series, made] = series_[job].gauges.try_emplace({metric.name, value});
  if (made) {
    series->second = {GaugeFamily(*registry_, metric.name, metric.help),
                      LabelsOf(job, label, value)};
  }
  series->second->Set(number);
}

void ControllerMetrics::Raise(const std::string& job, const JobMetric& metric, const char* label,
                              const std::string& value, double number) {
  const auto [series, made] = series_[job].counters.try_emplace({metric.name, value});
  if (made) {
    series->second = {CounterFamily(*registry_, metric.name, metric.help),
                      LabelsOf(job, label, value)};
  }
  metrics::RaiseTo(*series->second, number);
}

void ControllerMetrics::OnJob(const JobGauges& gauges) {
  MutexLock lock(mu_);
  const std::string& job = gauges.id;
  for (const auto state : kJobStates) {
    Set(job, kJobState, "state", StateName(state), state == gauges.state ? 1 : 0);
  }
  Set(job, kJobInfo, "name", gauges.name, 1);
  Set(job, kBound, "", "", static_cast<double>(gauges.staleness_bound));
  Set(job, kLastStep, "", "",
      gauges.last_step == absl::InfinitePast()
          ? 0
          : absl::ToDoubleSeconds(gauges.last_step - absl::UnixEpoch()));
  for (const char* edge : kBlockingEdges) {
    Set(job, kBlocking, "edge", edge, gauges.blocking_edge == edge ? 1 : 0);
  }
  Set(job, kStalledSeconds, "", "", absl::ToDoubleSeconds(gauges.stalled_for));
  Raise(job, kSkipped, "", "", static_cast<double>(gauges.evaluations_skipped));
  for (const job::v1::Evaluation& evaluation : gauges.evaluations) {
    Set(job, kAccuracy, "eval_name", evaluation.name(), evaluation.accuracy());
  }
  SetBounds(gauges);
  if (gauges.has_stats) SetStats(gauges);
}

void ControllerMetrics::SetBounds(const JobGauges& gauges) {
  const StoreStats& stats = gauges.stats;
  const struct {
    const char* queue;
    int64_t entries;
    int64_t bound;
  } queues[] = {{"prompts", stats.queued_prompts, gauges.max_queued_prompts},
                {"groups", stats.capacity_used, gauges.capacity_groups},
                {"groups_in_flight", stats.running, gauges.max_in_flight_groups}};
  for (const auto& [queue, entries, bound] : queues) {
    Set(gauges.id, kQueued, "queue", queue, static_cast<double>(entries));
    Set(gauges.id, kBounds, "queue", queue, static_cast<double>(bound));
  }
}

void ControllerMetrics::SetStats(const JobGauges& gauges) {
  const std::string& job = gauges.id;
  const StoreStats& stats = gauges.stats;
  for (int i = 0; i < kNumGroupStates; ++i) {
    const char* state = Name(static_cast<GroupState>(i));
    Set(job, kGroups, "state", state, static_cast<double>(stats.groups[i]));
    Set(job, kTrajectories, "state", state,
        SamplesIn(static_cast<GroupState>(i), stats, gauges.group_size));
    const absl::Time oldest = gauges.oldest[static_cast<size_t>(i)];
    Set(job, kOldest, "state", state,
        oldest == absl::InfiniteFuture() ? 0 : absl::ToDoubleSeconds(oldest - absl::UnixEpoch()));
    Raise(job, kEntered, "state", state, static_cast<double>(stats.transitions[i]));
    Raise(job, kStateSeconds, "state", state, absl::ToDoubleSeconds(stats.time_in_state[i]));
  }
  Set(job, kBytes, "", "", BufferBytes(stats, gauges.group_size));
  Set(job, kPending, "", "", static_cast<double>(stats.running));
  Set(job, kLag, "", "", static_cast<double>(stats.queued_prompts));
  Set(job, kOutstanding, "", "", static_cast<double>(stats.outstanding));
  Set(job, kVersion, "", "", static_cast<double>(stats.committed_version));
  Raise(job, kLeasesExpired, "", "", static_cast<double>(stats.leases_expired));
  for (const char* kind : {"trained", "discarded"}) {
    const bool trained = std::string(kind) == "trained";
    Raise(job, kLengths, "end", kind,
          static_cast<double>(trained ? stats.trained_tokens : stats.discarded_tokens));
    Raise(job, kSamples, "end", kind,
          static_cast<double>(trained ? stats.trained_samples : stats.discarded_samples));
  }
  Set(job, kLedgerBacklog, "", "", static_cast<double>(stats.ledger_backlog));
  Set(job, kFilteredInARow, "", "", static_cast<double>(stats.filtered_in_a_row));
  Set(job, kPooled, "", "", static_cast<double>(stats.pooled_successes));
  for (const auto& [component, max_calls] : gauges.max_calls) {
    Set(job, kMaxCalls, "component", component, static_cast<double>(max_calls));
    Raise(job, kCalls, "component", component, 0);
  }
  for (const ComponentCalls& calls : stats.calls) {
    Raise(job, kCalls, "component", calls.component, static_cast<double>(calls.spent));
  }
  Raise(job, kSkippedSamples, "", "", static_cast<double>(stats.skipped_samples));
  Raise(job, kLimitedGroups, "", "", static_cast<double>(stats.limited_groups));
  SetEnds(gauges);
}

void ControllerMetrics::SetEnds(const JobGauges& gauges) {
  const StoreStats& stats = gauges.stats;
  std::map<std::string, double> by_kind = {{"dead", 0}};
  std::map<std::string, double> dropped;
  for (const char* reason : kDropReasons) dropped[reason] = 0;
  for (const auto& [label, groups] : stats.ended_by_reason) {
    // The text in "dead(...)" comes from a scorer and is unbounded.
    by_kind[label.starts_with("dead(") ? "dead" : label] += static_cast<double>(groups);
    dropped[DropReason(label)] += static_cast<double>(groups * gauges.group_size);
  }
  for (const auto& [label, samples] : stats.skipped_by_reason) {
    dropped[DropReason(label)] -= static_cast<double>(samples);
  }
  dropped["replaced"] += static_cast<double>(stats.replayed_samples);
  dropped["duplicate"] += static_cast<double>(stats.duplicate_puts);
  dropped["cancelled"] += static_cast<double>(stats.fenced_puts);
  for (const auto& [kind, groups] : by_kind) Raise(gauges.id, kEnded, "reason", kind, groups);
  for (const auto& [reason, samples] : dropped) {
    Raise(gauges.id, kDropped, "reason", reason, samples);
  }
}

void ControllerMetrics::OnJobGone(const std::string& id) {
  MutexLock lock(mu_);
  series_.erase(id);
}

void ControllerMetrics::OnWorkers(const std::vector<Member>& workers) {
  for (const auto role : kRoles) {
    for (const char* state : kWorkerStates) {
      const auto count = std::count_if(workers.begin(), workers.end(), [&](const Member& member) {
        return member.record.role() == role && WorkerState(member) == state;
      });
      workers_.Add({{"role", RoleName(role)}, {"state", state}}).Set(static_cast<double>(count));
    }
  }
}

void ControllerMetrics::OnJobEnded(job::v1::JobState state) {
  jobs_ended_.Add({{"state", StateName(state)}}).Increment();
}

void ControllerMetrics::OnPools(const std::vector<PoolStats>& pools) {
  MutexLock lock(mu_);
  if (leading_) SetPools(pools);
}

void ControllerMetrics::SetPools(const std::vector<PoolStats>& pools) {
  std::erase_if(pools_, [&pools](const auto& shown) {
    return std::none_of(pools.begin(), pools.end(),
                        [&shown](const PoolStats& stats) { return stats.pool == shown.first; });
  });
  for (const PoolStats& stats : pools) {
    if (pools_.size() >= kMostPools && !pools_.contains(stats.pool)) continue;
    const auto [found, made] = pools_.try_emplace(stats.pool);
    Pool& pool = found->second;
    if (made) pool.ready = {ready_, {{"pool", stats.pool}}};
    pool.ready->Set(stats.ready);
    if (pool.reason != stats.reason || !pool.wanted.has_value()) {
      // Reset first, so that a scrape never sees both series of a pool.
      pool.wanted.reset();
      pool.wanted.emplace(wanted_,
                          metrics::Labels{{"pool", stats.pool}, {"reason", Name(stats.reason)}});
      pool.reason = stats.reason;
    }
    (*pool.wanted)->Set(stats.wanted);
  }
}

void ControllerMetrics::OnWorkerLost(cluster::v1::Role role) {
  lost_.Add({{"role", RoleName(role)}}).Increment();
}

void ControllerMetrics::OnWorkFailed(cluster::v1::Role role) {
  failed_.Add({{"role", RoleName(role)}}).Increment();
}

}  // namespace freshet
