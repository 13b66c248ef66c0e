#ifndef FRESHET_DATASTORE_CURATION_POLICY_H_
#define FRESHET_DATASTORE_CURATION_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "datastore/staleness_policy.h"

namespace freshet {

// Curation policy: which completed groups are trained on, and where a rare success is replayed. All
// TrajectoryStore backends use these functions, or a server-side script that is tested against
// them. `rewards` are those of a completed group's samples, by index; at least one, all finite.
//
// All functions are pure and thread-safe.

// Which groups are filtered.
struct RewardFilter {
  bool zero_variance = false;      // all rewards are equal
  std::optional<double> min_mean;  // the mean reward is below: "none solved"
  std::optional<double> max_mean;  // the mean reward is above: "all solved"
};

// Why a group is filtered: "too_hard" (min_mean), "too_easy" (max_mean) or "zero_variance", checked
// in this order; "" if it is not filtered.
std::string_view DecideFilter(const RewardFilter& filter, const std::vector<double>& rewards);

// Why a job paused after this many filtered groups in a row.
std::string FilteredText(int64_t filtered);
// What follows that text: how many groups of the job were filtered for each reason, and the fix.
// `ended`: StoreStats::ended_by_reason.
std::string FilteredCounts(const std::vector<std::pair<std::string, int64_t>>& ended);

// Success pool. A success is a sample whose reward reaches `min_reward`. A success of a group with
// at most `max_successes` of them is kept for the group's prompt, if it bears a loss. If a later
// group of the same prompt has no success, a copy of the kept one replaces one of its samples.
struct ReplayOptions {
  int64_t max_age = 1;        // in versions, of the copy's oldest loss-bearing token
  double min_reward = 0;      // of a success
  int64_t capacity = 1;       // successes in the pool, one per prompt
  int64_t max_successes = 1;  // of a group whose success is kept

  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  absl::Status Validate() const;
};

struct ReplayDecision {
  std::optional<int32_t> keep;     // the highest reward, the first of equal ones
  std::optional<int32_t> replace;  // the lowest reward, the last of equal ones
};
// At most one of the two is set: `keep` for 1 to max_successes successes, `replace` for none.
ReplayDecision DecideReplay(const ReplayOptions& replay, const std::vector<double>& rewards);

// Whether a success whose oldest loss-bearing token is of `oldest` may be replayed in this ready
// group. The group can be trained by steps that start from at most its min version (under kMask:
// max version) + eta. The success must be within max_age at that version, so a replayed sample is
// never too old while its group is not, and `wait` still drops nothing.
bool MayReplay(const StalenessOptions& staleness, const ReplayOptions& replay,
               const GroupAge& group, int64_t oldest);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_CURATION_POLICY_H_
