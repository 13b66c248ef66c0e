#include "services/runtime/process_identity.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>

#include "base/digest.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet::runtime {

std::string HostId() {
  // Not ReadFile, because files under /proc have size 0.
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat pids {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &pids) != 0) return "";
  return StrCat(boot, "/", pids.st_ino);
}

std::string RandomId() {
  std::array<uint64_t, 2> bits{};
  FRESHET_CHECK(::getrandom(bits.data(), sizeof(bits), 0) == sizeof(bits));
  return StrCat(Hex64(bits[0]), Hex64(bits[1]));
}

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace freshet::runtime
