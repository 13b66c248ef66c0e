#include "cli/client/local_cluster.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/unique_fd.h"
#include "cli/client/server_target.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

constexpr uint64_t kMaxStateBytes = 4 << 20;

// Addresses of the controllers in cluster.json; empty if unreadable.
std::vector<std::string> ControllersIn(const std::string& state_file) {
  const auto text = ReadFile(state_file, kMaxStateBytes);
  if (!text.ok()) return {};
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  const auto controller = json.find("controller");
  if (controller == json.end() || !controller->is_string()) return {};
  return SplitAddresses(controller->get<std::string>());
}

}  // namespace

bool IsLocked(const std::string& lock_file) {
  const UniqueFd fd(::open(lock_file.c_str(), O_RDONLY | O_CLOEXEC));
  return ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::string LocalClusterTokenFile(const std::string& state_folder,
                                  const std::vector<std::string>& addresses) {
  std::error_code error;
  for (const auto& folder :
       std::filesystem::directory_iterator(state_folder + "/clusters", error)) {
    const std::string path = folder.path().string();
    const std::vector<std::string> controllers = ControllersIn(path + "/cluster.json");
    if (std::find_first_of(controllers.begin(), controllers.end(), addresses.begin(),
                           addresses.end()) != controllers.end() &&
        IsLocked(path + "/lock") && std::filesystem::exists(path + "/cluster.token", error)) {
      return path + "/cluster.token";
    }
  }
  return "";
}

}  // namespace freshet
