#include "controller/jobs/driver/job_driver.h"

#include <utility>

#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/transient.h"
#include "controller/jobs/driver/curriculum_history.h"
#include "controller/jobs/plan/store_setup.h"
#include "controller/jobs/plan/team_plan.h"
#include "job/eval_sets.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_SUCCEEDED;

// Revisions of member lists: the leader's token in the high bits, a counter in the low bits.
constexpr int kRevisionBits = 24;
constexpr int64_t kCurriculumEvents = kMaxEventPage;  // read of a job with a curriculum

bool SameAssignments(const JobRecord& a, const JobRecord& b) {
  if (a.assignments_size() != b.assignments_size()) return false;
  for (int i = 0; i < a.assignments_size(); ++i) {
    if (a.assignments(i).id() != b.assignments(i).id() ||
        a.assignments(i).epoch() != b.assignments(i).epoch()) {
      return false;
    }
  }
  return true;
}

}  // namespace

void FreeEnded(const DriverContext& context, const JobRecord& record) {
  const absl::Status freed =
      context.stores.Free(context.registry.Removal(record),
                          /*resumable=*/record.state() != JOB_STATE_SUCCEEDED);
  if (freed.ok()) return;
  FRESHET_LOG(Warning) << "event=free_failed job=" << record.id()
                       << " error=" << LogQuoted(Message(freed));
}

JobDriver::JobDriver(const DriverContext& context, const JobRecord& record)
    : context_(context),
      id_(record.id()),
      spec_(record.spec()),
      workers_(context.hub, context.timing, record.id(), context.fence << kRevisionBits),
      last_progress_(context.clock.Now()) {
  workers_.Reserve(record);
  demand_.job = id_;
  demand_.pool = record.pool();
  demand_.phase = JobPhase::kStarts;
  demand_.measured = last_progress_;
}

JobDriver::~JobDriver() { Stop(); }

void JobDriver::Start() {
  thread_ = std::thread([this] { Run(stop_.get_token()); });
}

void JobDriver::RequestStop() {
  stop_.request_stop();
  context_.hub.Wake();
}

void JobDriver::Stop() {
  RequestStop();
  if (thread_.joinable()) thread_.join();
}

bool JobDriver::finished() const {
  MutexLock lock(mu_);
  return finished_;
}

JobLive JobDriver::Live() const {
  MutexLock lock(mu_);
  return live_;
}

JobDemand JobDriver::Demand() const {
  MutexLock lock(mu_);
  return demand_;
}

absl::StatusOr<cluster::v1::FetchRowsReply> JobDriver::FetchRows(
    const cluster::v1::FetchRowsRequest& request) const {
  std::shared_ptr<const JobInputs> inputs;
  {
    MutexLock lock(mu_);
    inputs = inputs_;
  }
  if (inputs == nullptr) {
    return StatusOf(absl::StatusCode::kUnavailable, "the data of job ", id_, " is not open yet");
  }
  RowSource source = TrainingRows(*inputs);
  if (request.held_out()) {
    FRESHET_ASSIGN_OR_RETURN(source, HeldOutRowsOf(spec_, *inputs, request.eval_set()));
  }
  FRESHET_ASSIGN_OR_RETURN(std::vector<trajectory::v1::DatasetRow> rows,
                           freshet::FetchRows(source, request.first(), request.count()));
  cluster::v1::FetchRowsReply reply;
  reply.set_total(source.total);
  for (trajectory::v1::DatasetRow& row : rows) *reply.add_rows() = std::move(row);
  return reply;
}

absl::StatusOr<JobRecord> JobDriver::Change(const std::function<absl::Status(JobRecord&)>& change) {
  return context_.registry.Change(id_, change);
}

void JobDriver::Run(std::stop_token stop) {
  const LogScope scope(id_);
  while (!stop.stop_requested()) {
    const uint64_t seen = context_.hub.ChangeCount();
    const absl::StatusOr<bool> done = Turn();
    if (!done.ok()) {
      FRESHET_LOG(Warning) << "event=turn_failed job=" << id_
                           << " error=" << LogQuoted(Message(done.status()));
    }
    if (done.ok() && *done) break;
    if (!stop.stop_requested()) context_.hub.AwaitChange(seen, context_.timing.tick);
  }
  StopFeeder();
  if (evaluations_.has_value()) evaluations_->Cancel();
}

absl::StatusOr<bool> JobDriver::Turn() {
  const absl::StatusOr<JobRecord> stored = context_.registry.Get(id_);
  if (stored.status().code() == absl::StatusCode::kNotFound ||
      (stored.ok() && !IsActive(*stored))) {
    workers_.Dismiss();
    context_.reservations.Release(id_);
    context_.observer.OnJobGone(id_);
    if (stored.ok() && HasEnded(stored->state())) FreeEnded(context_, *stored);
    MutexLock lock(mu_);
    finished_ = true;
    return true;
  }
  FRESHET_RETURN_IF_ERROR(stored.status());
  JobRecord record = *stored;
  const absl::Time now = context_.clock.Now();
  const std::vector<Member> workers = context_.hub.Workers();
  WorkersReport report =
      workers_.Inspect(record, workers, stats_.has_value() ? stats_->committed_version : -1, now);
  for (const cluster::v1::Role role : report.failed) context_.observer.OnWorkFailed(role);

  const bool cancelled = record.wanted() == cluster::v1::WANTED_CANCELLED;
  // The deadline of a cancelled job counts from when it is cancelled.
  if (cancelled && !team_end_.empty()) {
    team_end_.clear();
    ending_since_.reset();
  }
  if (cancelled || !team_end_.empty()) {
    if (base_assign_ != nullptr || report.trainer_lists_work) {
      workers_.Publish(record, workers, base_assign_, /*paused=*/true, /*with_trainer=*/false);
      if (!TrainerLetGo(report, cancelled, now)) return false;
    }
    if (!cancelled) return FinishWithTeam(record, report);
    return Finish(JOB_STATE_CANCELLED,
                  record.wanted_reason().empty()
                      ? "cancelled on request"
                      : StrCat("cancelled on request: ", record.wanted_reason()));
  }
  FRESHET_RETURN_IF_ERROR(Reconcile(record, workers, report));
  opening_ = Open(record, report);
  if (!opening_.ok()) {
    if (!IsTransient(opening_)) return Finish(JOB_STATE_FAILED, Message(opening_));
  } else {
    const bool paused = record.wanted() == cluster::v1::WANTED_PAUSED;
    workers_.Publish(record, workers, base_assign_, paused, /*with_trainer=*/true);
    store_status_ = LookAtStore();
  }
  FRESHET_RETURN_IF_ERROR(MoveState(record, report));
  FRESHET_RETURN_IF_ERROR(ReadProgress(record, /*save=*/false));
  FRESHET_RETURN_IF_ERROR(Evaluate(record, report, now));
  const std::string failure = FindFailure(report);
  if (!failure.empty()) return Finish(JOB_STATE_FAILED, failure);
  if (record.trainer_done() && FinalEvaluationOver(record, now)) {
    return Finish(JOB_STATE_SUCCEEDED,
                  StrCat("all ", spec_.trainer().steps(), " steps are done and saved"));
  }
  FRESHET_RETURN_IF_ERROR(Watch(record, report, now));
  FRESHET_ASSIGN_OR_RETURN(const std::string team_end, FindEndWithTeam(record, report, now));
  if (team_end.empty()) return false;
  FRESHET_RETURN_IF_ERROR(Change([&](JobRecord& current) {
                            AddNotice(current, Severity::kWarning, "team_ended", team_end, now);
                            return absl::OkStatus();
                          }).status());
  team_end_ = team_end;
  return false;
}

absl::Status JobDriver::Reconcile(JobRecord& record, const std::vector<Member>& workers,
                                  const WorkersReport& report) {
  const absl::Time now = context_.clock.Now();
  AssignmentRules rules;
  rules.replace = report.replace;
  const Assignment* trainer = FindAssignment(record, cluster::v1::ROLE_TRAINER);
  if (trainer != nullptr && trainer->epoch() == 0 &&
      now - FromTimestamp(trainer->since()) >= context_.timing.other_trainer_after) {
    for (const Member& member : workers) {
      const bool free =
          member.record.role() == cluster::v1::ROLE_TRAINER && !member.record.lost() &&
          member.connected && !member.status.draining() &&
          context_.reservations.Reserve(Reservations::Trainer(member.record.name()), id_);
      if (!free) continue;
      rules.other_trainer = member.record.name();
      break;
    }
  }
  JobRecord planned = record;
  const AssignmentChange change = PlanAssignments(planned, workers, rules, now);
  if (SameAssignments(planned, record)) {
    context_.reservations.ReleaseOtherTrainers(id_, record.trainer());
    return absl::OkStatus();
  }
  // A record written by a successor may name workers unknown here, which must not be revoked.
  if (!change.revoke.empty()) FRESHET_RETURN_IF_ERROR(context_.registry.CheckLead());
  // Return leases before the record drops their holders: if the controller dies in between, the
  // next one repeats the work.
  if (store_ == nullptr && !change.revoke.empty()) {
    const absl::Status opened = OpenStore(record);
    // Permanent errors are reported by Open, which ends the job.
    const bool lasting = opened.code() == absl::StatusCode::kInvalidArgument ||
                         opened.code() == absl::StatusCode::kFailedPrecondition;
    if (!opened.ok() && !lasting) return opened;
  }
  for (const std::string& worker : change.revoke) {
    if (store_ != nullptr) FRESHET_RETURN_IF_ERROR(store_->RevokeWorker(worker).status());
  }
  FRESHET_ASSIGN_OR_RETURN(record, Change([&](JobRecord& current) {
                             if (HasEnded(current.state())) return absl::OkStatus();
                             const AssignmentChange made =
                                 PlanAssignments(current, workers, rules, now);
                             for (const AssignmentChange::Note& note : made.notes) {
                               AddNotice(current, note.severity, note.kind, note.text, now);
                             }
                             return absl::OkStatus();
                           }));
  context_.reservations.ReleaseOtherTrainers(id_, record.trainer());
  return absl::OkStatus();
}

absl::Status JobDriver::Open(const JobRecord& record, const WorkersReport& report) {
  const absl::Time now = context_.clock.Now();
  std::shared_ptr<const JobInputs> inputs;
  {
    MutexLock lock(mu_);
    inputs = inputs_;
  }
  if (inputs == nullptr) {
    if (report.trainer_address.empty()) {
      return StatusOf(absl::StatusCode::kUnavailable,
                      "the trainer has not described the model yet");
    }
    if (now < open_retry_at_) return opening_;
    open_retry_at_ = now + context_.timing.retry_first;
    FRESHET_ASSIGN_OR_RETURN(trainer::v1::ModelBundle bundle,
                             context_.trainers.DescribeModel(report.trainer_address, spec_,
                                                             context_.timing.describe_deadline));
    FRESHET_ASSIGN_OR_RETURN(inputs, OpenJobInputs(spec_, std::move(bundle), context_.roots));
    if (inputs->data.curriculum != nullptr) {
      const absl::Status read = ObserveHistory(context_.events, EventStream(id_), kCurriculumEvents,
                                               *inputs->data.curriculum);
      if (IsTransientStoreError(read)) {
        return StatusOf(absl::StatusCode::kUnavailable, Message(read));
      }
      if (!read.ok()) {  // the job goes on: its shares follow the steps to come
        FRESHET_LOG(Warning) << "event=curriculum_history_unread job=" << id_
                             << " error=" << LogQuoted(Message(read));
      }
    }
    if (const std::string& warning = inputs->data.warning; !warning.empty()) {
      FRESHET_RETURN_IF_ERROR(Change([&](JobRecord& current) {
                                AddNotice(current, Severity::kWarning, "dataset", warning, now);
                                return absl::OkStatus();
                              }).status());
    }
    MutexLock lock(mu_);
    inputs_ = inputs;
  }
  if (store_ == nullptr) {
    // A successor may have deleted the job while the trainer described the model.
    if (const absl::Status leads = context_.registry.CheckLead(); !leads.ok()) {
      return StatusOf(absl::StatusCode::kUnavailable, Message(leads));
    }
    FRESHET_RETURN_IF_ERROR(OpenStore(record));
  }
  if (spec_.has_eval() && !evaluations_.has_value()) {
    std::vector<EvaluatedSet> sets;
    for (const job::v1::EvalSet& set : EvalSets(spec_)) {
      FRESHET_ASSIGN_OR_RETURN(const RowSource rows, HeldOutRowsOf(spec_, *inputs, set.name()));
      sets.push_back({set, rows.total});
    }
    evaluations_.emplace(context_.hub, store_->evaluations(), context_.timing.evaluation_deadline,
                         id_, spec_, std::move(sets));
  }
  if (base_assign_ == nullptr) base_assign_ = BaseAssign(record);
  if (feeder_ == nullptr) {
    FRESHET_ASSIGN_OR_RETURN(PromptCursor cursor, store_->Cursor());
    PromptFeederOptions options = MakeFeederOptions(spec_, inputs->bounds);
    options.start = std::move(cursor);
    feeder_ = std::make_unique<PromptFeeder>(*store_, *inputs->data.train,
                                             MakePromptEncoder(spec_, *inputs->tokenizer), options);
    feeder_thread_ = std::jthread([this](std::stop_token stop) {
      const LogScope scope(id_);
      const absl::Status status = feeder_->Run(stop);
      if (stop.stop_requested()) return;
      MutexLock lock(mu_);
      feeder_status_ = status;
    });
  }
  return absl::OkStatus();
}

absl::Status JobDriver::OpenStore(const JobRecord& record) {
  StoreOptions options = MakeStoreOptions(record.spec(), record.id());
  options.generation = record.store_generation();
  FRESHET_ASSIGN_OR_RETURN(store_, context_.stores.Open(options));
  return absl::OkStatus();
}

std::shared_ptr<const cluster::v1::Assign> JobDriver::BaseAssign(const JobRecord& record) const {
  auto assign = std::make_shared<cluster::v1::Assign>();
  assign->set_job_id(id_);
  *assign->mutable_spec() = spec_;
  MutexLock lock(mu_);
  *assign->mutable_model() = *inputs_->model;
  assign->set_longest_prompt_tokens(inputs_->bounds.longest);
  assign->set_resume(record.runs() > 1 || record.step() > 0);
  *assign->mutable_started() = record.started();
  return assign;
}

absl::StatusOr<bool> JobDriver::FinishWithTeam(JobRecord& record, const WorkersReport& report) {
  if (!report.fatal.empty()) return Finish(JOB_STATE_FAILED, report.fatal);
  FRESHET_RETURN_IF_ERROR(LookAtStore());
  const auto groups = [this](GroupState state) {
    return stats_->groups[static_cast<size_t>(state)];
  };
  if (groups(GroupState::kTrained) > 0) {
    FRESHET_RETURN_IF_ERROR(ReadProgress(record, /*save=*/true));
    std::string error = FindSaveError(record);
    if (error.empty()) error = report.trainer_lost;
    const int64_t saved = stats_->transitions[static_cast<size_t>(GroupState::kDurable)];
    const int ends = saved == saved_at_unsaved_end_ ? unsaved_ends_ + 1 : 1;
    const std::string failure = FindTeamEndFailure(ends, error);
    if (!failure.empty()) return Finish(JOB_STATE_FAILED, failure);
    unsaved_ends_ = ends;
    saved_at_unsaved_end_ = saved;
    FRESHET_LOG(Warning) << "event=team_end_not_saved job=" << id_ << " error=" << LogQuoted(error);
  } else if (groups(GroupState::kClaimed) > 0) {
    // The trainer stopped during a step, which is trained first.
    FRESHET_LOG(Info) << "event=team_end_step_claimed job=" << id_;
  } else {
    return Finish(JOB_STATE_SUCCEEDED, team_end_);
  }
  team_end_.clear();
  ending_since_.reset();
  return false;
}

absl::StatusOr<bool> JobDriver::Finish(job::v1::JobState state, const std::string& reason) {
  const absl::Time now = context_.clock.Now();
  if (store_ != nullptr) LookAtStore().IgnoreError();
  // Keep the last stats. Failing to do so does not block the end.
  if (absl::StatusOr<JobRecord> latest = context_.registry.Get(id_); latest.ok()) {
    ReadProgress(*latest, /*save=*/true).IgnoreError();
  }
  JobLive last;
  TakeCounts(last);
  const auto change = [&](JobRecord& record) {
    if (HasEnded(record.state())) return absl::OkStatus();
    if (stats_.has_value()) SetCounts(last, *record.mutable_counts_at_end());
    FRESHET_RETURN_IF_ERROR(MoveTo(record, state, reason, now));
    *record.mutable_expires() = ToTimestamp(now + context_.retention.keep);
    return absl::OkStatus();
  };
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, Change(change));
  FRESHET_LOG(Info) << "event=job_ended job=" << id_ << " state=" << StateName(record.state())
                    << " reason=" << LogQuoted(record.reason());
  StopFeeder();
  return false;  // the next turn sees the end and releases the workers
}

void JobDriver::StopFeeder() {
  feeder_thread_.request_stop();
  if (store_ != nullptr) store_->Close();  // unblocks the feeder
  if (feeder_thread_.joinable()) feeder_thread_.join();
}

}  // namespace freshet
