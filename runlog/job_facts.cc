#include "runlog/job_facts.h"

#include <exception>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "yaml-cpp/yaml.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxJobBytes = uint64_t{1} << 20;

template <typename T>
std::optional<T> ScalarAt(const YAML::Node& parent, const char* key) {
  if (!parent.IsMap()) return std::nullopt;
  const YAML::Node node = parent[key];
  if (!node.IsDefined() || !node.IsScalar()) return std::nullopt;
  T value{};
  if (!YAML::convert<T>::decode(node, value)) return std::nullopt;
  return value;
}

YAML::Node Child(const YAML::Node& parent, const char* key) {
  const YAML::Node node = parent[key];
  return node.IsDefined() ? node : YAML::Node();
}

}  // namespace

absl::StatusOr<JobFacts> ReadJobFacts(const std::string& path) {
  JobFacts facts;
  FRESHET_ASSIGN_OR_RETURN(facts.yaml, ReadFile(path, kMaxJobBytes));
  try {
    const YAML::Node root = YAML::Load(facts.yaml);
    if (!root.IsMap()) return InvalidArgument(path, ": not a YAML mapping");
    facts.name = ScalarAt<std::string>(root, "name").value_or("");
    facts.prompts_per_step = ScalarAt<int64_t>(root, "prompts_per_step");
    facts.group_size = ScalarAt<int64_t>(root, "group_size");
    const YAML::Node staleness = Child(root, "staleness");
    facts.staleness_max = ScalarAt<int64_t>(staleness, "max");
    facts.staleness_policy = ScalarAt<std::string>(staleness, "policy").value_or("");
    facts.replay_max_age = ScalarAt<int64_t>(Child(root, "replay"), "max_age");
    facts.min_group_size = ScalarAt<int64_t>(Child(root, "adaptive_rollouts"), "min_group_size");
    facts.steps = ScalarAt<int64_t>(Child(root, "trainer"), "steps");
  } catch (const std::exception& error) {
    return InvalidArgument(path, ": not YAML: ", error.what());
  }
  return facts;
}

}  // namespace freshet
