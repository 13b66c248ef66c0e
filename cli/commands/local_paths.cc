#include "cli/commands/local_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/client/server_target.h"
#include "services/runtime/endpoint_options.h"

namespace freshet {

std::vector<std::string> AbsolutePathOverrides(const freshet::job::v1::JobSpec& spec,
                                               const std::string& server_address) {
  std::vector<std::string> overrides;
  const std::vector<std::string> addresses = SplitAddresses(server_address);
  if (!std::all_of(addresses.begin(), addresses.end(), runtime::IsLoopback)) return overrides;
  const auto add = [&](const std::string& key, const std::string& path) {
    if (path.empty() || path.front() == '/') return;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return;
    const std::filesystem::path absolute = std::filesystem::absolute(path, error);
    if (!error) overrides.push_back(key + "=" + absolute.lexically_normal().string());
  };
  add("model.path", spec.model().path());
  add("tokenizer.path", spec.tokenizer().path());
  add("dataset.path", spec.dataset().path());
  add("dataset.eval_path", spec.dataset().eval_path());
  add("dataset.more_path", spec.dataset().more_path());
  for (const auto& [name, task] : spec.tasks()) {
    add("tasks." + name + ".dataset.path", task.dataset().path());
    add("tasks." + name + ".dataset.eval_path", task.dataset().eval_path());
  }
  for (int i = 0; i < spec.eval().sets_size(); ++i) {
    add("eval.sets." + std::to_string(i) + ".path", spec.eval().sets(i).path());
  }
  return overrides;
}

}  // namespace freshet
