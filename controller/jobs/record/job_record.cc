#include "controller/jobs/record/job_record.h"

#include <algorithm>

#include "base/proto_time.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "datastore/job_records.h"
#include "job/eval_sets.h"
#include "job/job_id.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_STARTING;
using job::v1::JOB_STATE_SUCCEEDED;
using job::v1::JobState;

constexpr size_t kMaxReasonBytes = 4096;
constexpr int64_t kMostCalls = 1'000'000'000'000;  // the maximum of the key max_calls

bool IsLegal(JobState from, JobState to) {
  switch (from) {
    case JOB_STATE_PENDING:
      return to == JOB_STATE_STARTING || to == JOB_STATE_PAUSED || to == JOB_STATE_FAILED ||
             to == JOB_STATE_CANCELLED;
    case JOB_STATE_STARTING:
      return to != JOB_STATE_SUCCEEDED;
    case JOB_STATE_RUNNING:
      return to != JOB_STATE_STARTING;
    case JOB_STATE_PAUSED:
      return true;
    case JOB_STATE_FAILED:
    case JOB_STATE_CANCELLED:
      return to == JOB_STATE_PENDING;
    default:
      return false;
  }
}

constexpr char kNotice[] = "notice";

job::v1::Event* AddKeyedEvent(JobRecord& record, const std::string& key) {
  record.add_recent_events()->set_key(key);
  if (record.recent_events_size() > kRecentEvents) {
    record.mutable_recent_events()->DeleteSubrange(0, record.recent_events_size() - kRecentEvents);
  }
  return record.mutable_recent_events(record.recent_events_size() - 1)->mutable_event();
}

job::v1::Event* AddEvent(JobRecord& record, const char* kind, absl::Time now) {
  record.set_events_made(record.events_made() + 1);
  job::v1::Event* event = AddKeyedEvent(record, StrCat(kind, "/", record.events_made()));
  *event->mutable_time() = ToTimestamp(now);
  return event;
}

// Truncated as stored in the record.
std::string Cut(const std::string& text) { return ValidUtf8(text, kMaxReasonBytes); }

std::string Because(const std::string& what, const std::string& reason) {
  return reason.empty() ? what : StrCat(what, ": ", Cut(reason));
}

}  // namespace

bool IsActive(const JobRecord& record) {
  return record.state() == JOB_STATE_STARTING || record.state() == JOB_STATE_RUNNING ||
         (record.state() == JOB_STATE_PAUSED && record.assignments_size() > 0);
}

bool NeedsEnvWorkers(const job::v1::JobSpec& spec) {
  return spec.has_environment() && spec.environment().address().empty();
}

std::string EngineOf(const job::v1::JobSpec& spec) {
  // Jobs accepted by an older version do not have it.
  return spec.rollout().has_engine() ? spec.rollout().engine() : "native";
}

std::string EngineOf(const cluster::v1::WorkerRecord& rollout) {
  return rollout.engine().empty() ? "native" : rollout.engine();
}

JobRecord NewJobRecord(const std::string& id, const job::v1::JobSpec& spec, int32_t priority,
                       absl::Time now) {
  JobRecord record;
  record.set_id(id);
  *record.mutable_spec() = spec;
  record.set_priority(priority);
  *record.mutable_created() = ToTimestamp(now);
  record.set_evaluated_version(-1);
  record.set_state(JOB_STATE_PENDING);
  record.set_reason("submitted; waits for its turn");
  job::v1::StateChange* change = AddEvent(record, "state", now)->mutable_state();
  change->set_state(record.state());
  change->set_reason(record.reason());
  return record;
}

absl::Status MoveTo(JobRecord& record, JobState state, const std::string& reason, absl::Time now) {
  const std::string text = Cut(reason);
  if (record.state() == state) {
    record.set_reason(text);
    return absl::OkStatus();
  }
  if (!IsLegal(record.state(), state)) {
    return FailedPrecondition("job ", record.id(), " is ", StateName(record.state()),
                              " and cannot become ", StateName(state));
  }
  if (state == JOB_STATE_STARTING) {
    record.set_runs(record.runs() + 1);
    if (!record.has_started()) *record.mutable_started() = ToTimestamp(now);
  }
  record.set_state(state);
  record.set_reason(text);
  if (HasEnded(state)) {
    *record.mutable_finished() = ToTimestamp(now);
    record.clear_assignments();
    record.clear_wanted();
    record.clear_wanted_reason();
  }
  job::v1::StateChange* change = AddEvent(record, "state", now)->mutable_state();
  change->set_state(state);
  change->set_reason(text);
  return absl::OkStatus();
}

void AddNotice(JobRecord& record, Severity severity, const std::string& kind,
               const std::string& text, absl::Time now) {
  job::v1::Notice* notice = AddEvent(record, kNotice, now)->mutable_notice();
  notice->set_severity(severity == Severity::kInfo      ? "info"
                       : severity == Severity::kWarning ? "warning"
                                                        : "error");
  notice->set_kind(kind);
  notice->set_text(Cut(text));
}

void KeepWorkersNotice(JobRecord& record, const cluster::v1::KeyedEvent& notice) {
  if (notice.key().starts_with(StrCat(kNotice, "/"))) return;  // the controller's
  const bool kept = std::ranges::any_of(
      record.recent_events(), [&notice](const auto& other) { return other.key() == notice.key(); });
  if (!kept) *AddKeyedEvent(record, notice.key()) = notice.event();
}

absl::Status WantPaused(JobRecord& record, const std::string& reason, absl::Time now) {
  if (HasEnded(record.state())) {
    return FailedPrecondition("job ", record.id(), " has ended: it is ", StateName(record.state()));
  }
  if (record.wanted() == cluster::v1::WANTED_CANCELLED) {
    return FailedPrecondition("job ", record.id(), " is being cancelled");
  }
  if (record.state() == JOB_STATE_PAUSED && record.wanted() == cluster::v1::WANTED_PAUSED) {
    return absl::OkStatus();
  }
  record.set_wanted(cluster::v1::WANTED_PAUSED);
  record.set_wanted_reason(Cut(reason));
  if (record.state() == JOB_STATE_PENDING) {
    return MoveTo(record, JOB_STATE_PAUSED, Because("paused on request", reason), now);
  }
  return absl::OkStatus();
}

absl::Status WantResumed(JobRecord& record, absl::Time now) {
  if (record.state() == JOB_STATE_SUCCEEDED) {
    return FailedPrecondition("job ", record.id(),
                              " has succeeded: there is nothing left to resume");
  }
  if (record.wanted() == cluster::v1::WANTED_CANCELLED) {
    return FailedPrecondition("job ", record.id(), " is being cancelled; resume it afterwards");
  }
  if (record.deleting()) return FailedPrecondition("job ", record.id(), " is being deleted");
  const bool ended = HasEnded(record.state());
  if (ended) *record.mutable_resumed() = ToTimestamp(now);
  record.clear_wanted();
  record.clear_wanted_reason();
  if (!ended && !(record.state() == JOB_STATE_PAUSED && record.assignments_size() == 0)) {
    return absl::OkStatus();
  }
  record.clear_finished();
  record.clear_expires();
  record.clear_trainer_done();
  record.clear_final_evaluation_done();
  return MoveTo(record, JOB_STATE_PENDING, "resumed; waits for its turn", now);
}

absl::Status RaiseMaxCalls(JobRecord& record,
                           const google::protobuf::Map<std::string, int64_t>& max_calls) {
  auto& components = *record.mutable_spec()->mutable_reward()->mutable_components();
  for (const auto& [name, value] : max_calls) {
    const auto found = components.find(name);
    if (found == components.end() || !found->second.has_max_calls()) {
      return InvalidArgument("max_calls: job ", record.id(), " has no reward.components.",
                             Cut(name), ".max_calls");
    }
    const int64_t present = found->second.max_calls();
    if (value == present) continue;
    if (value < present) {
      return InvalidArgument("max_calls: reward.components.", name, ".max_calls is ", present,
                             "; give more, got ", value);
    }
    if (value > kMostCalls) {
      return InvalidArgument("max_calls: reward.components.", name, ".max_calls: give at most ",
                             kMostCalls, ", got ", value);
    }
    if (!HasEnded(record.state())) {
      return FailedPrecondition("max_calls: job ", record.id(), " is ", StateName(record.state()),
                                "; raise it when the job has ended");
    }
    found->second.set_max_calls(value);
  }
  return absl::OkStatus();
}

absl::Status GiveWorkersUp(JobRecord& record, const std::string& reason, absl::Time now) {
  record.clear_assignments();
  switch (record.wanted()) {
    case cluster::v1::WANTED_CANCELLED:
      return MoveTo(record, JOB_STATE_CANCELLED,
                    Because("cancelled on request", record.wanted_reason()), now);
    case cluster::v1::WANTED_PAUSED:
      return MoveTo(record, JOB_STATE_PAUSED, Because("paused on request", reason), now);
    default:
      return MoveTo(record, JOB_STATE_PENDING, StrCat(reason, "; waits for its turn"), now);
  }
}

absl::Status WantDeleted(JobRecord& record) {
  if (!HasEnded(record.state())) {
    return FailedPrecondition("job ", record.id(), " is ", StateName(record.state()),
                              "; cancel it first");
  }
  record.set_deleting(true);
  return absl::OkStatus();
}

absl::Status WantCancelled(JobRecord& record, const std::string& reason, absl::Time now) {
  if (record.state() == JOB_STATE_CANCELLED) return absl::OkStatus();
  if (HasEnded(record.state())) {
    return FailedPrecondition("job ", record.id(), " has ended: it is ", StateName(record.state()));
  }
  if (record.wanted() == cluster::v1::WANTED_CANCELLED) return absl::OkStatus();
  if (!IsActive(record)) {
    return MoveTo(record, JOB_STATE_CANCELLED, Because("cancelled on request", reason), now);
  }
  record.set_wanted(cluster::v1::WANTED_CANCELLED);
  record.set_wanted_reason(Cut(reason));
  record.set_reason(Because("is being cancelled", reason));
  return absl::OkStatus();
}

Assignment NewAssignment(JobRecord& record, cluster::v1::Role role, const std::string& worker,
                         int64_t epoch, const std::string& incarnation, absl::Time now) {
  record.set_assignments_made(record.assignments_made() + 1);
  Assignment assignment;
  assignment.set_id(StrCat(record.id(), "/", RoleName(role), "/", record.assignments_made()));
  assignment.set_role(role);
  assignment.set_worker(worker);
  assignment.set_epoch(epoch);
  assignment.set_incarnation(incarnation);
  *assignment.mutable_since() = ToTimestamp(now);
  return assignment;
}

std::string JobOfAssignment(const std::string& assignment_id) {
  const size_t end = assignment_id.find('/');
  return end == std::string::npos ? "" : assignment_id.substr(0, end);
}

absl::Status ValidateJobId(const std::string& id) {
  if (id == kClusterTag) {
    return InvalidArgument("'", id, "' is reserved for the cluster's records; choose another");
  }
  if (IsJobId(id)) return absl::OkStatus();
  return InvalidArgument("must be 1 to ", kMaxJobIdLength,
                         " letters, digits, '.', '_' and '-', beginning with a letter or digit");
}

int64_t EvaluatedVersion(const JobRecord& record, const std::string& name) {
  const auto found = record.evaluated_versions().find(name);
  return found == record.evaluated_versions().end() ? record.evaluated_version() : found->second;
}

void SetEvaluatedVersion(JobRecord& record, const std::string& name, int64_t version) {
  (*record.mutable_evaluated_versions())[name] = std::max(EvaluatedVersion(record, name), version);
  int64_t all = version;
  for (const job::v1::EvalSet& set : EvalSets(record.spec())) {
    all = std::min(all, EvaluatedVersion(record, set.name()));
  }
  record.set_evaluated_version(std::max(record.evaluated_version(), all));
}

job::v1::Job ToJob(const JobRecord& record, bool details) {
  job::v1::Job job;
  job.set_id(record.id());
  job.set_name(record.spec().name());
  *job.mutable_spec() = record.spec();
  job.set_state(record.state());
  job.set_reason(record.reason());
  job.set_priority(record.priority());
  *job.mutable_created() = record.created();
  if (record.has_started()) *job.mutable_started() = record.started();
  if (record.has_finished()) *job.mutable_finished() = record.finished();
  if (record.has_expires()) *job.mutable_expires() = record.expires();
  job.set_step(record.step());
  job.set_steps(record.spec().trainer().steps());
  job.set_lineage(record.lineage());
  job.set_reward_mean(record.reward_mean());
  if (record.has_eval_accuracy()) job.set_eval_accuracy(record.eval_accuracy());
  *job.mutable_evaluations() = record.evaluations();
  if (details) {
    for (const auto& keyed : record.recent_events()) *job.add_recent_events() = keyed.event();
  }
  return job;
}

}  // namespace freshet
