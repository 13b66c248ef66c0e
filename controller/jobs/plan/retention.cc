#include "controller/jobs/plan/retention.h"

#include <algorithm>

#include "base/proto_time.h"
#include "base/str_cat.h"
#include "controller/jobs/plan/team_plan.h"

namespace freshet {

std::vector<Expiry> FindExpired(const std::vector<JobRecord>& records, absl::Time now,
                                const RetentionOptions& options) {
  std::vector<const JobRecord*> ended;
  for (const JobRecord& record : records) {
    if (HasEnded(record.state())) ended.push_back(&record);
  }
  const auto end_of = [](const JobRecord* record) { return FromTimestamp(record->finished()); };
  std::stable_sort(ended.begin(), ended.end(),
                   [&](const JobRecord* a, const JobRecord* b) { return end_of(a) < end_of(b); });
  const size_t surplus = ended.size() > options.max_ended ? ended.size() - options.max_ended : 0;
  std::vector<Expiry> expired;
  for (size_t i = 0; i < ended.size(); ++i) {
    if (!CheckTeamEnded(records, *ended[i]).ok()) continue;
    if (now - end_of(ended[i]) >= options.keep) {
      expired.push_back(
          {ended[i]->id(), StrCat("ended more than ", absl::FormatDuration(options.keep), " ago")});
    } else if (i < surplus) {
      expired.push_back(
          {ended[i]->id(), StrCat("more than ", options.max_ended,
                                  " jobs have ended since; the oldest are deleted first")});
    }
  }
  return expired;
}

}  // namespace freshet
