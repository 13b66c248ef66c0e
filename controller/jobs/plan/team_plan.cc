#include "controller/jobs/plan/team_plan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/proto_time.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_SUCCEEDED;

constexpr size_t kMostReasons = 5;  // that a text names

bool AreOneTeam(const JobRecord& a, const JobRecord& b) {
  return !a.spec().team().empty() && a.spec().team() == b.spec().team() && a.id() != b.id();
}

bool EndedBefore(const JobRecord& a, const JobRecord& b) {
  return FromTimestamp(a.finished()) < FromTimestamp(b.finished());
}

// "worker" of the job TEAM-worker, or of one with this name; else the job's id.
std::string PolicyOf(const JobRecord& record) {
  const std::string prefix = StrCat(record.spec().team(), "-");
  for (const std::string& name : {record.id(), record.spec().name()}) {
    if (name.size() > prefix.size() && name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return record.id();
}

// The job because of which `record` is to be cancelled; null if there is none.
const JobRecord* FindFirstFailure(const std::vector<JobRecord>& records, const JobRecord& record) {
  const JobRecord* first = nullptr;
  for (const JobRecord& other : records) {
    const bool since =
        !record.has_resumed() || FromTimestamp(other.finished()) >= FromTimestamp(record.resumed());
    if (!AreOneTeam(record, other) || !HasFailedOrWasCancelled(other) || !since) continue;
    if (first == nullptr || EndedBefore(other, *first)) first = &other;
  }
  return first;
}

// "3 dead(score_failed), 1 filtered(...)", the most frequent first.
std::string DescribeEnds(const StoreStats& stats) {
  std::vector<std::pair<std::string, int64_t>> ends = stats.ended_by_reason;
  std::ranges::stable_sort(ends, std::greater(), &std::pair<std::string, int64_t>::second);
  std::string text;
  for (size_t i = 0; i < std::min(ends.size(), kMostReasons); ++i) {
    text += StrCat(text.empty() ? "" : ", ", ends[i].second, " ", ends[i].first);
  }
  return text.empty() ? "no group" : text;
}

}  // namespace

bool HasFailedOrWasCancelled(const JobRecord& record) {
  return record.state() == JOB_STATE_FAILED || record.state() == JOB_STATE_CANCELLED;
}

std::vector<TeamStop> FindTeamStops(const std::vector<JobRecord>& records) {
  std::vector<TeamStop> stops;
  for (const JobRecord& record : records) {
    if (record.spec().team().empty() || HasEnded(record.state()) ||
        record.wanted() == cluster::v1::WANTED_CANCELLED) {
      continue;
    }
    const JobRecord* first = FindFirstFailure(records, record);
    if (first == nullptr) continue;
    stops.push_back({record.id(), first->id(),
                     StrCat("team ", record.spec().team(), ": policy ", PolicyOf(*first), " ",
                            first->state() == JOB_STATE_FAILED ? "failed" : "was cancelled", ": ",
                            first->reason())});
  }
  return stops;
}

std::vector<EndedPartner> FindEndedPartners(const std::vector<JobRecord>& records,
                                            const JobRecord& record) {
  std::vector<EndedPartner> partners;
  for (const JobRecord& other : records) {
    if (!AreOneTeam(record, other) || other.state() != JOB_STATE_SUCCEEDED) continue;
    partners.push_back({PolicyOf(other), FromTimestamp(other.finished())});
  }
  return partners;
}

std::string FindTeamEnd(const std::vector<EndedPartner>& partners, const TeamProgress& progress,
                        const ControllerTiming& timing, absl::Time now) {
  const int64_t step = progress.stats.committed_version;
  // On the other edges the step has all its groups, or they are being scored or trained.
  const bool needs_groups = progress.edge == "rollout" || progress.edge == "prompts";
  if (partners.empty() || step >= progress.steps || !needs_groups) return "";
  // The edge names the oldest group that the step waits for; others may be enough for it.
  const auto groups = [&progress](GroupState state) {
    return progress.stats.groups[static_cast<size_t>(state)];
  };
  if (groups(GroupState::kGenerated) + groups(GroupState::kScored) > 0) return "";
  const int64_t ready = groups(GroupState::kReady);
  const bool held = ready >= progress.groups_per_step;
  const EndedPartner& first = *std::ranges::min_element(partners, {}, &EndedPartner::at);
  const absl::Duration patience = held ? timing.team_ready_patience : timing.team_patience;
  if (now - std::max(progress.last, first.at) < patience) return "";
  return StrCat("ends after step ", step, " of ", progress.steps, ": policy ", first.policy,
                " has ended, so that no more prompts can be played; given up here: ",
                DescribeEnds(progress.stats),
                held ? StrCat("; not trained: ", ready,
                              " ready groups, because the step waits for an older one")
                     : "");
}

std::string FindTeamEndFailure(int ends, const std::string& error) {
  if (ends < kMostTeamEnds) return "";
  return StrCat("the job would end with its team, but its last steps were not saved in ", ends,
                " tries: ", error.empty() ? "the trainer has named no error; see its log" : error,
                "; once the cause is removed, resume the job");
}

std::string FindSaveError(const JobRecord& record) {
  for (int i = record.recent_events_size() - 1; i >= 0; --i) {
    const job::v1::Notice& notice = record.recent_events(i).event().notice();
    if (notice.kind() == "checkpoint_failed") return notice.text();
    if (notice.kind() == "team_ended") break;
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> FindTeamResumes(const std::vector<JobRecord>& records,
                                                         const JobRecord& record) {
  std::vector<std::string> jobs;
  for (const JobRecord& other : records) {
    if (!AreOneTeam(record, other)) continue;
    if (other.wanted() == cluster::v1::WANTED_CANCELLED) {
      return FailedPrecondition("job ", other.id(), " of the same team is being cancelled; resume ",
                                record.id(), " afterwards");
    }
    if (HasFailedOrWasCancelled(other) && !other.deleting()) jobs.push_back(other.id());
  }
  return jobs;
}

absl::Status CheckTeamEnded(const std::vector<JobRecord>& records, const JobRecord& record) {
  if (record.state() != JOB_STATE_SUCCEEDED) return absl::OkStatus();
  for (const JobRecord& other : records) {
    if (!AreOneTeam(record, other) || HasEnded(other.state())) continue;
    return FailedPrecondition("job ", other.id(), " of the team of ", record.id(),
                              " has not ended; delete ", record.id(), " afterwards");
  }
  return absl::OkStatus();
}

absl::Status CheckTeamPool(const std::vector<JobRecord>& records, const std::string& id,
                           const job::v1::JobSpec& spec) {
  for (const JobRecord& other : records) {
    if (spec.team().empty() || other.spec().team() != spec.team() || other.id() == id ||
        HasEnded(other.state()) || other.spec().pool() != spec.pool()) {
      continue;
    }
    return FailedPrecondition("pool: ", spec.pool(), " is also that of job ", other.id(),
                              " of the same team, and a pool serves one job at a time; give each "
                              "policy a pool of its own");
  }
  return absl::OkStatus();
}

}  // namespace freshet
