#include "cli/client/user_folders.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace freshet {
namespace {

std::string Folder(const char* variable, const char* below_home) {
  const char* base = std::getenv(variable);
  // The specification says to ignore relative paths.
  if (base != nullptr && *base == '/') return std::string(base) + "/freshet";
  const char* home = std::getenv("HOME");
  const std::string root = home != nullptr && *home == '/' ? home : "/tmp";
  return root + "/" + below_home + "/freshet";
}

}  // namespace

std::string ConfigFolder() { return Folder("XDG_CONFIG_HOME", ".config"); }

std::string StateFolder() { return Folder("XDG_STATE_HOME", ".local/state"); }

std::string BinaryFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path().string();
}

}  // namespace freshet
