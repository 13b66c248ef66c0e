#include "cli/commands/team_submission.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/job_id.h"

namespace freshet {
namespace {

// FAILED_PRECONDITION: the job has failed or was cancelled, and so would the others.
absl::Status CheckUsable(const job::v1::Job& job) {
  const bool failed = job.state() == job::v1::JOB_STATE_FAILED;
  if (!failed && job.state() != job::v1::JOB_STATE_CANCELLED) return absl::OkStatus();
  return FailedPrecondition("job ", job.id(), failed ? " has failed" : " was cancelled",
                            "; choose another --id, or delete it with: freshet delete ", job.id());
}

// A call to Submit that ended with `status` has created no job.
bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

// Which of the jobs exist already.
absl::StatusOr<std::set<std::string>> KnownJobs(
    JobClient& client, const std::vector<job::v1::SubmitRequest>& requests) {
  std::set<std::string> known;
  for (const job::v1::SubmitRequest& request : requests) {
    const absl::StatusOr<job::v1::Job> job = client.Get(request.job_id());
    if (absl::IsNotFound(job.status())) continue;
    FRESHET_RETURN_IF_ERROR(job.status());
    FRESHET_RETURN_IF_ERROR(CheckUsable(*job));
    known.insert(request.job_id());
  }
  return known;
}

}  // namespace

absl::Status CheckPools(const std::vector<JobResult>& jobs) {
  std::map<std::string, std::string> policies;  // by pool
  for (const JobResult& job : jobs) {
    const auto [first, is_new] = policies.emplace(job.spec.pool(), job.policy);
    if (is_new) continue;
    return absl::InvalidArgumentError(FormatConfigError(job.places.At(
        "pool",
        StrCat("is ", job.spec.pool(), " for the policies ", first->second, " and ", job.policy,
               ", and a pool serves one job at a time; give each policy a pool of its "
               "own"))));
  }
  return absl::OkStatus();
}

std::string MakeTeamId(const std::vector<JobResult>& jobs, uint64_t random_bits) {
  size_t longest = 0;
  for (const JobResult& job : jobs) longest = std::max(longest, job.policy.size());
  constexpr size_t kSuffix = 9;  // "-xxxxxxxx"
  const size_t room = kMaxJobIdLength - std::min(kMaxJobIdLength, longest + 1 + kSuffix);
  const JobResult& first = jobs.front();
  return MakeJobId(first.spec.team().substr(0, std::max<size_t>(room, 1)), random_bits);
}

absl::Status CheckTeamIds(const std::vector<JobResult>& jobs, const std::string& team) {
  for (const JobResult& job : jobs) {
    const std::string id = StrCat(team, "-", job.policy);
    if (IsJobId(id)) continue;
    return InvalidArgument("--id: the id ", id, " of policy ", job.policy, " must be 1 to ",
                           kMaxJobIdLength,
                           " letters, digits, '.', '_' and '-', beginning with a letter or digit");
  }
  return absl::OkStatus();
}

job::v1::ValidateRequest ToValidateRequest(const job::v1::SubmitRequest& submit) {
  job::v1::ValidateRequest request;
  request.set_yaml(submit.yaml());
  request.set_file_name(submit.file_name());
  request.set_policy(submit.policy());
  *request.mutable_overrides() = submit.overrides();
  return request;
}

TeamSubmission SubmitTeam(JobClient& client, const std::vector<job::v1::SubmitRequest>& requests) {
  TeamSubmission result;
  for (const job::v1::SubmitRequest& request : requests) {
    result.status = client.Validate(ToValidateRequest(request)).status();
    if (!result.status.ok()) return result;
  }
  const absl::StatusOr<std::set<std::string>> known = KnownJobs(client, requests);
  result.status = known.status();
  if (!known.ok()) return result;
  for (const job::v1::SubmitRequest& request : requests) {
    const absl::StatusOr<job::v1::Job> job = client.Submit(request);
    result.status = job.ok() ? CheckUsable(*job) : job.status();
    // A job whose Submit was not answered may exist.
    if (result.status.ok() || !IsRefusal(result.status)) result.ids.push_back(request.job_id());
    if (!result.status.ok()) break;
  }
  if (result.status.ok()) return result;
  for (const std::string& id : result.ids) {
    if (known->contains(id)) continue;
    const absl::Status cancelled =
        client.Cancel(id, "another policy of its team was refused").status();
    // A job that is not found will not be created either (see JobService.Submit), except after
    // UNAVAILABLE: a server that was lost may still have the call.
    if (absl::IsNotFound(cancelled) && !absl::IsUnavailable(result.status)) continue;
    (cancelled.ok() ? result.cancelled : result.left).push_back(id);
  }
  result.ids.clear();
  return result;
}

}  // namespace freshet
