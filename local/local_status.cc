#include "local/local_status.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <variant>

#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "job/eval_sets.h"
#include "rollout/worker/rollout_worker.h"
#include "runlog/evaluation_summary.h"
#include "runlog/jsonl.h"
#include "services/reward/worker/reward_worker.h"

namespace freshet {
namespace {

constexpr size_t kMaxRows = 100'000;
constexpr size_t kMaxSamples = 1000;
constexpr int kMaxEvents = 24;
constexpr size_t kMaxLineBytes = size_t{4} << 20;

double Share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0.0;
}

double PerSecond(int64_t tokens, const StepMetrics& step) {
  return step.step_seconds > 0 ? static_cast<double>(tokens) / step.step_seconds : 0.0;
}

}  // namespace

LocalStatus::LocalStatus(const JobSpec& spec, const Clock& clock)
    : clock_(clock), id_(spec.name()) {
  job_.set_id(id_);
  job_.set_name(spec.name());
  *job_.mutable_spec() = spec;
  job_.set_steps(spec.trainer().steps());
  *job_.mutable_created() = ToTimestamp(clock.Now());
  *job_.mutable_started() = job_.created();
  SetState(job::v1::JOB_STATE_STARTING, "loads model and data, and warms up");
}

void LocalStatus::LoadHistory(const std::string& metrics_path, const std::string& samples_path) {
  // A new run has neither file.
  ForEachLine(metrics_path, kMaxLineBytes,
              [this](int64_t, std::string_view line) {
                AddRow(std::string(line));
                return absl::OkStatus();
              })
      .status()
      .IgnoreError();
  const absl::StatusOr<SampleExcerpt> samples = ReadSampleExcerpt(samples_path, 0, kMaxSamples);
  if (samples.ok()) AddSamples(samples->last);
}

void LocalStatus::AddRow(const std::string& json) {
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(json);
  if (!row.ok()) return;
  MutexLock lock(mu_);
  if (const auto* step = std::get_if<StepMetrics>(&*row)) {
    job_.set_step(step->step);
    job_.set_lineage(step->lineage);
    job_.set_reward_mean(step->reward_mean);
    last_step_ = *step;
  } else if (const auto* evaluation = std::get_if<EvalMetrics>(&*row)) {
    SetNewestEvaluation(*evaluation, *job_.mutable_evaluations());
    if (IsFirstEvalSet(job_.spec(), evaluation->eval_name)) {
      job_.set_eval_accuracy(evaluation->eval_accuracy);
    }
  } else {
    return;
  }
  rows_.emplace_back(++cursor_, json);
  if (rows_.size() > kMaxRows) rows_.pop_front();
}

void LocalStatus::AddNotice(const std::string& kind,
                            const std::map<std::string, std::string>& fields) {
  job::v1::Event event;
  job::v1::Notice& notice = *event.mutable_notice();
  notice.set_kind(kind);
  notice.set_severity(kind == "stalled" ? "warning" : "info");
  for (const auto& [key, value] : fields) {
    notice.set_text(StrCat(notice.text(), notice.text().empty() ? "" : ", ",
                           key == "reason" ? "" : StrCat(key, " "), value));
  }
  MutexLock lock(mu_);
  AddEvent(std::move(event));
}

void LocalStatus::AddSamples(const std::vector<SampleRow>& rows) {
  MutexLock lock(mu_);
  for (const SampleRow& row : rows) samples_.push_back(ToJson(row));
  while (samples_.size() > kMaxSamples) samples_.pop_front();
}

void LocalStatus::AddEvent(job::v1::Event event) {
  *event.mutable_time() = ToTimestamp(clock_.Now());
  *job_.add_recent_events() = std::move(event);
  if (job_.recent_events_size() > kMaxEvents) job_.mutable_recent_events()->DeleteSubrange(0, 1);
}

void LocalStatus::SetState(job::v1::JobState state, const std::string& reason) {
  MutexLock lock(mu_);
  job_.set_state(state);
  job_.set_reason(reason);
  job::v1::Event event;
  event.mutable_state()->set_state(state);
  event.mutable_state()->set_reason(reason);
  AddEvent(std::move(event));
}

void LocalStatus::Watch(TrajectoryStore* store, const RolloutWorker* rollout,
                        const RewardWorker* reward) {
  MutexLock lock(live_mu_);
  store_ = store;
  rollout_ = rollout;
  reward_ = reward;
}

StatusIdentity LocalStatus::Identity() { return {"local", Version(), true, ""}; }

absl::Status LocalStatus::Check(const std::string& id) const {
  if (id == id_) return absl::OkStatus();
  return NotFound("there is no job ", id, "; this process runs ", id_);
}

absl::StatusOr<StatusJobs> LocalStatus::List(int) {
  StatusJobs list;
  MutexLock lock(mu_);
  list.jobs.push_back(job_);
  list.jobs.front().clear_recent_events();
  return list;
}

absl::StatusOr<job::v1::Job> LocalStatus::Get(const std::string& id) {
  FRESHET_RETURN_IF_ERROR(Check(id));
  job::v1::Job job;
  {
    MutexLock lock(mu_);
    job = job_;
  }
  MutexLock lock(live_mu_);
  if (store_ == nullptr) return job;
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, store_->Stats());
  for (int state = 0; state < kNumGroupStates; ++state) {
    (*job.mutable_groups())[std::string(Name(static_cast<GroupState>(state)))] =
        stats.groups[state];
  }
  for (const auto& [reason, groups] : stats.ended_by_reason)
    (*job.mutable_ended())[reason] = groups;
  FRESHET_ASSIGN_OR_RETURN(const Explanation explanation, store_->Explain());
  std::string why;
  if (explanation.edge == "reward" && reward_ != nullptr) why = reward_->WaitsFor();
  if (explanation.edge == "rollout" && rollout_ != nullptr) why = rollout_->counters().handed_back;
  job.set_waits_for(StrCat(explanation.edge, ": ", explanation.text, why.empty() ? "" : "; ", why));
  return job;
}

absl::StatusOr<StatusRows> LocalStatus::Metrics(const std::string& id, int64_t after,
                                                int64_t limit) {
  FRESHET_RETURN_IF_ERROR(Check(id));
  MutexLock lock(mu_);
  if (after > cursor_) {
    return StatusOf(absl::StatusCode::kOutOfRange, "after: ", after, " is above the newest row, ",
                    cursor_);
  }
  StatusRows page;
  page.cursor = after;
  const int64_t oldest = rows_.empty() ? cursor_ + 1 : rows_.front().first;
  page.gap = after > 0 && after + 1 < oldest;
  // Cursors are consecutive.
  for (int64_t next = std::max(after + 1, oldest); next <= cursor_; ++next) {
    if (static_cast<int64_t>(page.rows.size()) == limit) {
      page.more = true;
      break;
    }
    page.rows.push_back(rows_[static_cast<size_t>(next - oldest)].second);
    page.cursor = next;
  }
  return page;
}

absl::StatusOr<std::vector<std::string>> LocalStatus::Samples(const std::string& id, int limit) {
  FRESHET_RETURN_IF_ERROR(Check(id));
  MutexLock lock(mu_);
  const size_t count = std::min(samples_.size(), static_cast<size_t>(std::max(limit, 0)));
  return std::vector<std::string>(samples_.rbegin(),
                                  samples_.rbegin() + static_cast<std::ptrdiff_t>(count));
}

job::v1::Worker LocalStatus::MakeWorker(const std::string& role) const {
  job::v1::Worker worker;
  worker.set_name(role);
  worker.set_role(role);
  worker.set_state("ready");
  worker.add_jobs(id_);
  worker.set_program_version(Version());
  *worker.mutable_last_seen() = ToTimestamp(clock_.Now());
  return worker;
}

absl::StatusOr<job::v1::Cluster> LocalStatus::Cluster() {
  StepMetrics step;
  {
    MutexLock lock(mu_);
    if (last_step_.has_value()) step = *last_step_;
  }
  job::v1::Cluster cluster;
  job::v1::Worker trainer = MakeWorker("trainer");
  trainer.set_version(step.policy_version);
  trainer.set_lineage(step.lineage);
  trainer.set_busy_ratio(Share(step.train_seconds, step.step_seconds));
  trainer.set_tokens_per_second(PerSecond(step.tokens_trained, step));
  job::v1::Worker rollout = MakeWorker("rollout");
  rollout.set_version(step.policy_version);
  rollout.set_lineage(step.lineage);
  rollout.set_tokens_per_second(PerSecond(step.tokens_generated, step));
  MutexLock lock(live_mu_);
  if (rollout_ == nullptr) return cluster;
  const RolloutCounters counters = rollout_->counters();
  const EngineStats& engine = counters.engine;
  rollout.set_busy_ratio(Share(static_cast<double>(engine.running_sequences),
                               static_cast<double>(engine.capacity_sequences)));
  rollout.set_kv_cache_used_ratio(
      Share(static_cast<double>(engine.cache_blocks - engine.cache_blocks_free),
            static_cast<double>(engine.cache_blocks)));
  if (engine.running_sequences == 0) rollout.set_waits_for(WaitReason(counters));
  job::v1::Worker reward = MakeWorker("reward");
  if (reward_ != nullptr) reward.set_waits_for(reward_->WaitsFor());
  *cluster.add_workers() = std::move(reward);
  *cluster.add_workers() = std::move(rollout);
  *cluster.add_workers() = std::move(trainer);
  return cluster;
}

}  // namespace freshet
