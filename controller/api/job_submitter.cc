#include "controller/api/job_submitter.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "controller/api/job_views.h"
#include "controller/jobs/plan/submission.h"
#include "controller/jobs/plan/team_plan.h"
#include "google/protobuf/util/message_differencer.h"
#include "job/job_id.h"
#include "job/job_yaml.h"

namespace freshet {
namespace {

constexpr int32_t kMaxPriority = 100;

template <typename Request>
Submission ToSubmission(const Request& request) {
  Submission submission;
  submission.yaml = request.yaml();
  submission.spec = request.has_spec() ? &request.spec() : nullptr;
  submission.file_name = request.file_name();
  submission.overrides.assign(request.overrides().begin(), request.overrides().end());
  submission.policy = request.policy();
  return submission;
}

// INVALID_ARGUMENT naming the field.
absl::Status CheckFields(const job::v1::SubmitRequest& request) {
  if (request.priority() < -kMaxPriority || request.priority() > kMaxPriority) {
    return BadField("priority", StrCat(request.priority(), " is not within ", -kMaxPriority,
                                       " and ", kMaxPriority));
  }
  if (request.job_id().empty()) return absl::OkStatus();
  const absl::Status valid = ValidateJobId(request.job_id());
  return valid.ok() ? valid : BadField("job_id", Message(valid));
}

// Gives the max_calls of components of `sent` the values that `known` has been raised to.
void TakeRaisedCalls(const job::v1::JobSpec& known, job::v1::JobSpec& sent) {
  for (auto& [name, component] : *sent.mutable_reward()->mutable_components()) {
    const auto found = known.reward().components().find(name);
    if (found == known.reward().components().end() || !component.has_max_calls()) continue;
    if (found->second.max_calls() > component.max_calls()) {
      component.set_max_calls(found->second.max_calls());
    }
  }
}

// The job with the id `id`, if it is that of `sent`. NOT_FOUND: there is none. ALREADY_EXISTS: it
// is another job.
absl::StatusOr<job::v1::Job> FindSubmitted(const JobRegistry& registry, const std::string& id,
                                           job::v1::JobSpec sent, int32_t priority) {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord known, registry.Get(id));
  if (sent.has_reward()) TakeRaisedCalls(known.spec(), sent);
  if (google::protobuf::util::MessageDifferencer::Equals(known.spec(), sent) &&
      known.priority() == priority) {
    return ToDetailedJob(known, nullptr);
  }
  return StatusOf(absl::StatusCode::kAlreadyExists, "job_id: ", id,
                  " belongs to a job with another spec; choose another id");
}

}  // namespace

absl::StatusOr<job::v1::Job> JobSubmitter::Submit(ControllerTerm& term,
                                                  const job::v1::SubmitRequest& request,
                                                  const std::function<bool()>& given_up) const {
  FRESHET_RETURN_IF_ERROR(CheckFields(request));
  const CheckedSubmission checked =
      CheckSubmission(ToSubmission(request), controller_.options().roots);
  if (!checked.errors.empty()) return InvalidJob(checked.errors);
  const std::string id =
      request.job_id().empty() ? MakeJobId(checked.spec.name(), random_()) : request.job_id();
  absl::StatusOr<job::v1::Job> known =
      FindSubmitted(term.registry, id, checked.spec, request.priority());
  if (known.status().code() != absl::StatusCode::kNotFound) return known;
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, term.registry.List());
  const auto open = std::count_if(records.begin(), records.end(), [](const JobRecord& record) {
    return !HasEnded(record.state());
  });
  if (static_cast<size_t>(open) >= max_jobs_) {
    return ResourceExhausted(open, " jobs are active, which is the maximum; try again later");
  }
  FRESHET_RETURN_IF_ERROR(CheckTeamPool(records, id, checked.spec));
  const JobRecord record =
      NewJobRecord(id, checked.spec, request.priority(), controller_.ports().clock.Now());
  const absl::Status created = term.registry.Create(record, given_up);
  if (created.code() == absl::StatusCode::kAlreadyExists) {
    return FindSubmitted(term.registry, id, checked.spec, request.priority());
  }
  FRESHET_RETURN_IF_ERROR(created);
  term.manager.LookAtQueue();
  return ToDetailedJob(record, nullptr);
}

absl::StatusOr<job::v1::ValidateReply> JobSubmitter::Validate(
    const job::v1::ValidateRequest& request) const {
  CheckedSubmission checked = CheckSubmission(ToSubmission(request), controller_.options().roots);
  if (!checked.errors.empty()) return InvalidJob(checked.errors);
  job::v1::ValidateReply reply;
  reply.set_yaml(WriteJobYaml(checked.spec));
  *reply.mutable_spec() = std::move(checked.spec);
  return reply;
}

}  // namespace freshet
