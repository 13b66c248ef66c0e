#ifndef FRESHET_JOB_POLICIES_H_
#define FRESHET_JOB_POLICIES_H_

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "job/config_error.h"
#include "job/yaml_tree.h"

namespace freshet {

// The key of a job file with several policies: a map of name to the keys that this policy's job has
// besides those of the file, or instead of them.
constexpr const char* kPolicies = "policies";
constexpr size_t kMinPolicies = 2;
constexpr size_t kMaxPolicies = 16;

// One job of a job file.
struct JobTree {
  std::string policy;                  // "" in a file without `policies`
  YamlNode root;                       // a map: the job's keys
  std::set<std::string> own;           // keys that `policies` gives, and all below them
  std::vector<std::string> overrides;  // those that are for this job, "a.b=c"
};

struct JobTrees {
  std::vector<JobTree> jobs;  // in file order
  std::vector<ConfigError> errors;
};

// The jobs of a file, whose keys are `root`, a map: one for each policy, or one without `policies`.
// Blocks and maps of a policy are merged into those of the file, key by key; other values replace
// them, and a block without a value removes it. A job is named NAME-POLICY, and has `team: NAME`.
//
// `overrides`: `policies.POLICY.a.b=c` is for this policy, and `a.b=c` for all. Applied in the
// order given. `name=N` renames the file's team; `team=T`, which needs `policy`, names that of one
// run.
//
// `policy`: only this job is returned, or none if the file does not have it ("": the job of a file
// without policies). Without it all jobs are, at least one if there are no errors.
//
// Errors: fewer or more policies than the bounds above, names with other characters than a to z,
// digits and '-', and keys that a policy, or the file, cannot have. Pure; linear in the size of the
// file times the number of jobs that are returned.
JobTrees ExpandPolicies(YamlNode root, const std::vector<std::string>& overrides,
                        const KeyPlaces& places,
                        const std::optional<std::string>& policy = std::nullopt);

// One override among those of a team.
struct PolicyOverride {
  std::string policy;  // "" if it is for all
  std::string key;     // as given
  std::string text;    // "a.b=c", without `policies.POLICY`
  std::string error;   // what is wrong with `key`; "" if nothing is
};
// Reads one override as described above; `names` are the team's policies.
PolicyOverride ReadPolicyOverride(const std::string& text, const std::vector<std::string>& names);

}  // namespace freshet

#endif  // FRESHET_JOB_POLICIES_H_
