#include "job/team_rules.h"

#include <algorithm>

#include "base/str_cat.h"

namespace freshet {

// Agents of a team play sample i of a prompt together, so all need the same group_size.
void CheckTeamRules(std::vector<JobResult>& jobs) {
  const JobResult* first = nullptr;  // with agents and a valid group size
  for (JobResult& job : jobs) {
    const bool usable = std::ranges::none_of(job.errors, [](const ConfigError& error) {
      return error.path == "group_size" || error.path.starts_with("environment");
    });
    if (!usable || job.spec.environment().type() != "openai_agent") continue;
    if (first == nullptr) first = &job;
    const int64_t size = first->spec.group_size();
    if (job.spec.group_size() == size) continue;
    job.errors.push_back(job.places.At(
        "group_size",
        StrCat("must be that of policy ", first->policy, ", ", size,
               ", because agents play each sample together; got ", job.spec.group_size())));
  }
}

}  // namespace freshet
