#ifndef FRESHET_JOB_POLICIES_H_
#define FRESHET_JOB_POLICIES_H_

#include <cstddef>
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
  std::vector<JobTree> jobs;  // in file order; not empty if there are no errors
  std::vector<ConfigError> errors;
};

// The jobs of a file, whose keys are `root`, a map: one for each policy, or one without `policies`.
// Blocks and maps of a policy are merged into those of the file, key by key; other values replace
// them, and a block without a value removes it. A job is named NAME-POLICY, and has `team: NAME`.
//
// `overrides`: `policies.POLICY.a.b=c` is for this policy, and `a.b=c` for all, in this order.
//
// Errors: fewer or more policies than the bounds above, names with other characters than a to z,
// digits and '-', and keys that a policy, or the file, cannot have. Pure; linear in the size of the
// file times the number of policies.
JobTrees ExpandPolicies(const YamlNode& root, const std::vector<std::string>& overrides,
                        const KeyPlaces& places);

}  // namespace freshet

#endif  // FRESHET_JOB_POLICIES_H_
