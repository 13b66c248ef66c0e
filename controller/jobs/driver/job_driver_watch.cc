#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/driver/job_driver.h"
#include "controller/jobs/plan/call_limits.h"
#include "controller/jobs/plan/death_reason.h"
#include "controller/jobs/plan/store_setup.h"
#include "controller/jobs/plan/team_plan.h"
#include "job/eval_sets.h"
#include "runlog/evaluation_summary.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_STARTING;

constexpr int64_t kEventsPerRead = 1000;
constexpr int64_t kDeadShown = 8;

void TakeEvaluation(const EvalMetrics& eval, JobRecord& record) {
  SetNewestEvaluation(eval, *record.mutable_evaluations());
  if (IsFirstEvalSet(record.spec(), eval.eval_name)) record.set_eval_accuracy(eval.eval_accuracy);
}

// Applies a row of metrics to the record's progress, and to `curriculum` unless null.
void TakeMetrics(const job::v1::Event& event, JobRecord& record, TaskCurriculum* curriculum) {
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(event.metrics_json());
  if (!row.ok()) return;
  if (const auto* step = std::get_if<StepMetrics>(&*row)) {
    if (curriculum != nullptr) {
      curriculum->Observe(step->lineage, step->step, step->task_rewards);
    }
    const auto key = std::make_pair(step->lineage, step->step);
    if (key < std::make_pair(record.lineage(), record.step())) return;
    record.set_lineage(step->lineage);
    record.set_step(step->step);
    record.set_reward_mean(step->reward_mean);
  } else if (const auto* eval = std::get_if<EvalMetrics>(&*row)) {
    TakeEvaluation(*eval, record);
  }
}

void CopyProgress(const JobRecord& from, JobRecord& to) {
  to.set_step(from.step());
  to.set_lineage(from.lineage());
  to.set_reward_mean(from.reward_mean());
  if (from.has_eval_accuracy()) to.set_eval_accuracy(from.eval_accuracy());
  *to.mutable_evaluations() = from.evaluations();
  to.set_metrics_cursor(from.metrics_cursor());
}

}  // namespace

void SetCounts(const JobLive& live, job::v1::Job& job) {
  *job.mutable_groups() = {live.groups.begin(), live.groups.end()};
  *job.mutable_ended() = {live.ended.begin(), live.ended.end()};
  *job.mutable_curated() = {live.curated.begin(), live.curated.end()};
  job.clear_dead_groups();
  for (const DeadLetter& letter : live.dead) {
    job::v1::DeadGroup& dead = *job.add_dead_groups();
    *dead.mutable_time() = ToTimestamp(letter.time);
    dead.set_prompt(letter.ordinal);
    dead.set_attempt(letter.attempt);
    dead.set_reason(ReasonLine(letter));
  }
}

absl::Status JobDriver::MoveState(JobRecord& record, const WorkersReport& report) {
  const absl::Time now = context_.clock.Now();
  const bool pause = record.wanted() == cluster::v1::WANTED_PAUSED;
  const bool works = report.trainer_running || report.trainer_done ||
                     (stats_.has_value() && stats_->committed_version > 0);
  const bool resumes = !pause && record.state() == JOB_STATE_PAUSED;
  const bool starts = !pause && works && record.state() == JOB_STATE_STARTING;
  const bool done = report.trainer_done && !record.trainer_done();
  const bool pauses = pause && record.state() != JOB_STATE_PAUSED;
  if (!pauses && !resumes && !starts && !done) return absl::OkStatus();
  last_progress_ = now;
  FRESHET_ASSIGN_OR_RETURN(
      record, Change([&](JobRecord& current) {
        if (HasEnded(current.state())) return absl::OkStatus();
        if (done) current.set_trainer_done(true);
        if (current.wanted() == cluster::v1::WANTED_PAUSED) {
          return MoveTo(current, JOB_STATE_PAUSED,
                        current.wanted_reason().empty()
                            ? "paused on request; keeps its workers"
                            : StrCat("paused on request: ", current.wanted_reason()),
                        now);
        }
        if (current.state() == JOB_STATE_PAUSED || current.state() == JOB_STATE_STARTING) {
          return MoveTo(current, works ? JOB_STATE_RUNNING : JOB_STATE_STARTING,
                        works ? "the trainer is at work" : "workers load model and data", now);
        }
        return absl::OkStatus();
      }));
  return absl::OkStatus();
}

bool JobDriver::TrainerLetGo(const WorkersReport& report, bool cancelled, absl::Time now) {
  if (!ending_since_.has_value()) {
    ending_since_ = now;
    ending_sequence_ = report.trainer_sequence;
  }
  if (report.trainers == 0) return true;
  // A later status no longer names the work.
  if (!report.trainer_lists_work && report.trainer_sequence != ending_sequence_) return true;
  return cancelled && now - *ending_since_ >= context_.timing.last_checkpoint_deadline;
}

absl::StatusOr<std::string> JobDriver::FindEndWithTeam(const JobRecord& record,
                                                       const WorkersReport& report,
                                                       absl::Time now) {
  if (spec_.team().empty()) return "";
  if (record.state() != JOB_STATE_RUNNING || !opening_.ok() || !store_status_.ok() ||
      !stats_.has_value() || !explanation_.has_value() || !report.trainer_running ||
      report.rollouts == 0 || explanation_->edge == "trainer") {
    team_unknown_at_ = now;
    return "";
  }
  const absl::Time last = std::max(last_progress_, team_unknown_at_);
  if (now - last < context_.timing.team_patience) return "";
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, context_.registry.List());
  return FindTeamEnd(
      FindEndedPartners(records, record),
      {*stats_, explanation_->edge, spec_.trainer().steps(), spec_.prompts_per_step(), last},
      context_.timing, now);
}

absl::Status JobDriver::LookAtStore() {
  FRESHET_RETURN_IF_ERROR(store_->Sweep().status());
  FRESHET_ASSIGN_OR_RETURN(stats_, store_->Stats());
  FRESHET_ASSIGN_OR_RETURN(explanation_, store_->Explain());
  const int64_t dead = stats_->transitions[static_cast<size_t>(GroupState::kDead)];
  if (dead == dead_read_) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(dead_, store_->DeadLetters(DeathWatch::kMostDeadInARow));
  dead_read_ = dead;
  return absl::OkStatus();
}

absl::Status JobDriver::ReadProgress(JobRecord& record, bool save) {
  JobRecord read = record;
  std::vector<cluster::v1::KeyedEvent> notices;
  std::shared_ptr<TaskCurriculum> curriculum;
  {
    MutexLock lock(mu_);
    if (inputs_ != nullptr) curriculum = inputs_->data.curriculum;
  }
  while (true) {
    absl::StatusOr<EventPage> page = context_.events.Read(EventStream(id_), read.metrics_cursor(),
                                                          kEventsPerRead, absl::ZeroDuration());
    if (page.status().code() == absl::StatusCode::kOutOfRange) {
      read.set_metrics_cursor(0);  // the stream was recreated
      break;
    }
    FRESHET_RETURN_IF_ERROR(page.status());
    for (const StoredEvent& stored : page->events) {
      job::v1::Event event;
      if (!event.ParseFromString(stored.value)) continue;
      if (event.has_metrics_json()) TakeMetrics(event, read, curriculum.get());
      if (!event.has_notice()) continue;
      event.set_cursor(StrCat(stored.cursor));
      notices.emplace_back().set_key(stored.key);
      *notices.back().mutable_event() = std::move(event);
    }
    if (!page->events.empty()) read.set_metrics_cursor(page->events.back().cursor);
    if (static_cast<int64_t>(page->events.size()) < kEventsPerRead) break;
  }
  if (read.metrics_cursor() == record.metrics_cursor()) return absl::OkStatus();
  // One write per second suffices while the job runs.
  const absl::Time now = context_.clock.Now();
  if (now - saved_ >= 5 * context_.timing.tick || save) {
    saved_ = now;
    FRESHET_ASSIGN_OR_RETURN(record, Change([&](JobRecord& current) {
                               CopyProgress(read, current);
                               for (const cluster::v1::KeyedEvent& notice : notices) {
                                 KeepWorkersNotice(current, notice);
                               }
                               return absl::OkStatus();
                             }));
  }
  return absl::OkStatus();
}

absl::Status JobDriver::Evaluate(JobRecord& record, const WorkersReport& report, absl::Time now) {
  if (!evaluations_.has_value() || record.wanted() == cluster::v1::WANTED_PAUSED) {
    return absl::OkStatus();
  }
  const int64_t committed = record.trainer_done() ? spec_.trainer().steps()
                            : stats_.has_value()  ? stats_->committed_version
                                                  : -1;
  std::vector<int64_t> done;
  for (const EvaluatedSet& set : evaluations_->sets()) {
    done.push_back(EvaluatedVersion(record, set.set.name()));
  }
  const std::optional<JobEvaluations::Ended> ended =
      evaluations_->Turn(committed, done, report.evaluators, now);
  if (!ended.has_value()) return absl::OkStatus();
  last_progress_ = now;
  int64_t version = ended->version;
  if (ended->metrics.has_value()) {
    EvalMetrics metrics = *ended->metrics;
    metrics.wall_seconds = absl::ToDoubleSeconds(now - FromTimestamp(record.started()));
    version = std::max(version, std::min(metrics.policy_version, committed));
    FRESHET_RETURN_IF_ERROR(context_.registry.AppendMetrics(
        id_, StrCat("eval/", metrics.lineage, "/", metrics.policy_version, "/", metrics.eval_name),
        ToJson(metrics)));
  }
  FRESHET_ASSIGN_OR_RETURN(record, Change([&](JobRecord& current) {
                             SetEvaluatedVersion(current, ended->set, version);
                             if (ended->metrics.has_value())
                               TakeEvaluation(*ended->metrics, current);
                             if (!ended->error.empty()) {
                               AddNotice(current, Severity::kWarning, "evaluation_failed",
                                         ended->error, now);
                             }
                             return absl::OkStatus();
                           }));
  evaluations_->Cancel();
  return absl::OkStatus();
}

bool JobDriver::FinalEvaluationOver(const JobRecord& record, absl::Time now) {
  if (!spec_.has_eval() || record.evaluated_version() >= spec_.trainer().steps()) return true;
  if (record.wanted() == cluster::v1::WANTED_PAUSED) return false;
  if (!trainer_done_since_.has_value()) trainer_done_since_ = now;
  const auto sets = static_cast<double>(std::max(spec_.eval().sets_size(), 1));
  return now - *trainer_done_since_ >= context_.timing.final_evaluation_deadline * sets;
}

std::string JobDriver::FindFailure(const WorkersReport& report) {
  if (!report.fatal.empty()) return report.fatal;
  {
    MutexLock lock(mu_);
    if (!feeder_status_.ok()) return StrCat("prompts cannot be fed: ", Message(feeder_status_));
  }
  if (explanation_.has_value() && explanation_->edge == "paused") {
    return explanation_->text + (stats_.has_value() ? FilteredCounts(stats_->ended_by_reason) : "");
  }
  if (!stats_.has_value()) return "";
  std::string used_up = FindCallsUsedUp(spec_.reward(), stats_->calls);
  if (!used_up.empty()) return used_up;
  const std::string failure = deaths_.Check(*stats_, dead_);
  return failure.empty() ? failure : failure + LastDeath(*store_);
}

bool JobDriver::AllSteps() const {
  return stats_.has_value() && stats_->committed_version >= spec_.trainer().steps();
}

JobGauges JobDriver::Measure(const JobRecord& record, const Blockage& blockage,
                             absl::Duration stalled_for, absl::Time now) {
  JobGauges gauges;
  gauges.id = id_;
  gauges.name = spec_.name();
  gauges.state = record.state();
  gauges.staleness_bound = spec_.staleness().max();
  if (!AllSteps()) gauges.last_step = last_step_;
  gauges.evaluations.assign(record.evaluations().begin(), record.evaluations().end());
  if (blockage.stalled) {
    gauges.blocking_edge = blockage.edge;
    gauges.stalled_for = stalled_for;
  }
  const StoreOptions bounds = MakeStoreOptions(spec_, id_);
  gauges.group_size = bounds.group_size;
  gauges.capacity_groups = bounds.capacity_groups;
  gauges.max_queued_prompts = bounds.max_queued_prompts;
  gauges.max_in_flight_groups = bounds.staleness.max_in_flight;
  for (const auto& [name, component] : spec_.reward().components()) {
    if (component.has_max_calls()) gauges.max_calls[name] = component.max_calls();
  }
  if (!stats_.has_value()) return gauges;
  gauges.has_stats = true;
  gauges.stats = *stats_;
  ages_.Take(*stats_, now);
  for (size_t state = 0; state < kNumGroupStates; ++state) {
    gauges.oldest[state] = ages_.oldest(static_cast<GroupState>(state));
  }
  return gauges;
}

JobDemand JobDriver::MeasureDemandOf(const JobRecord& record, const WorkersReport& report,
                                     const JobGauges& gauges, absl::Time now) const {
  JobSituation situation;
  situation.paused = record.state() == JOB_STATE_PAUSED;
  situation.trainers = report.trainers;
  situation.trainer_running = report.trainer_running;
  situation.trainer_done = report.trainer_done || record.trainer_done();
  situation.trainer_busy = report.trainer_busy;
  situation.opens = !opening_.ok() || !stats_.has_value();
  if (!situation.opens && store_status_.ok()) {
    situation.stats = &gauges.stats;
    situation.oldest_ready = gauges.oldest[static_cast<size_t>(GroupState::kReady)];
  }
  JobDemand demand = MeasureDemand(MakeStoreOptions(spec_, id_), situation, now);
  demand.job = id_;
  demand.pool = record.pool();
  return demand;
}

void JobDriver::TakeCounts(JobLive& live) const {
  if (!stats_.has_value()) return;
  for (int state = 0; state < kNumGroupStates; ++state) {
    live.groups[freshet::Name(static_cast<GroupState>(state))] = stats_->groups[state];
  }
  for (const auto& [reason, groups] : stats_->ended_by_reason) live.ended[reason] = groups;
  live.curated = {{"replayed", stats_->replayed_samples},
                  {"skipped", stats_->skipped_samples},
                  {"limited", stats_->limited_groups}};
  live.dead.assign(dead_.begin(), dead_.begin() + std::min(kDeadShown, std::ssize(dead_)));
}

absl::Status JobDriver::Watch(JobRecord& record, const WorkersReport& report, absl::Time now) {
  if (stats_.has_value()) {
    const int64_t mark = ProgressMark(*stats_);
    if (std::exchange(progress_mark_, mark) != mark) last_progress_ = now;
    if (std::exchange(last_committed_, stats_->committed_version) != stats_->committed_version) {
      last_step_ = now;
    }
  }
  // A warm-up changes nothing in the store, so the trainer's text counts as progress. Once the
  // trainer runs, the text only says what it waits for.
  if (std::exchange(progress_text_, report.trainer_waits) != report.trainer_waits &&
      !report.trainer_running) {
    last_progress_ = now;
  }
  JobHealth health(report);
  health.needs_env = NeedsEnvWorkers(spec_);
  health.paused = record.state() == JOB_STATE_PAUSED;
  health.trainer_starts = report.trainers > 0 && !report.trainer_running && !report.trainer_done;
  health.all_steps = AllSteps();
  health.trainer_done = record.trainer_done();
  health.pool = record.pool();
  health.engine = EngineOf(spec_);
  if (!store_status_.ok()) health.store_error = Message(store_status_);
  if (const absl::Status space = context_.stores.CheckSpace(); !space.ok()) {
    health.store_full = Message(space);
  }
  if (opening_.ok()) health.explanation = explanation_;
  if (!opening_.ok() && health.trainer_waits.empty()) health.trainer_waits = Message(opening_);
  health.since_progress = now - last_progress_;
  const Blockage blockage = FindBlockage(health, context_.timing.patience);

  JobGauges gauges = Measure(record, blockage, health.since_progress, now);
  JobDemand demand = MeasureDemandOf(record, report, gauges, now);
  JobLive live;
  live.ranks = report.ranks;
  live.waits_for = StrCat(blockage.edge, ": ", blockage.text);
  TakeCounts(live);
  if (evaluations_.has_value()) gauges.evaluations_skipped = evaluations_->skipped();
  {
    MutexLock lock(mu_);
    live_ = std::move(live);
    demand_ = std::move(demand);
  }
  context_.observer.OnJob(gauges);

  const std::string edge = blockage.stalled ? blockage.edge : "";
  if (edge == stalled_edge_) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(
      record, Change([&](JobRecord& current) {
        if (HasEnded(current.state())) return absl::OkStatus();
        if (blockage.stalled) {
          AddNotice(
              current, Severity::kWarning, "stalled",
              StrCat("no progress for ",
                     absl::FormatDuration(absl::Trunc(health.since_progress, absl::Seconds(1))),
                     ": ", blockage.edge, ": ", blockage.text),
              now);
        } else {
          AddNotice(current, Severity::kInfo, "progress", "the job makes progress again", now);
        }
        return absl::OkStatus();
      }));
  stalled_edge_ = edge;
  return absl::OkStatus();
}

}  // namespace freshet
