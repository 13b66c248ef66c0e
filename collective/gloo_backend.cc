#include "collective/gloo_backend.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/digest.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/gloo_communicator.h"

namespace freshet {
namespace {

constexpr size_t kNameDigits = 32;

// The name of a group's file: hexadecimal digits only, so that a caller cannot name another file.
bool IsName(const std::string& name) {
  return name.size() == kNameDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

absl::Status Unusable(const std::string& folder, const std::string& reason) {
  return StatusOf(absl::StatusCode::kUnavailable, folder, " ", reason,
                  "; remove it, or set TMPDIR");
}

// A folder that only this user can enter.
absl::StatusOr<std::string> PrivateFolder() {
  std::error_code error;
  const std::filesystem::path above = std::filesystem::temp_directory_path(error);
  if (error) {
    return StatusOf(absl::StatusCode::kUnavailable, "no folder for temporary files; set TMPDIR");
  }
  std::string folder = (above / StrCat("freshet-groups-", ::getuid())).string();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Unusable(folder, "cannot be made");
  }
  struct stat found = {};
  if (::lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::getuid() || (found.st_mode & 0077) != 0) {
    return Unusable(folder, "is not a folder of this user with mode 0700");
  }
  return folder;
}

// Removes the file with the group.
class GroupFile {
 public:
  explicit GroupFile(std::string path) : path_(std::move(path)) {}
  ~GroupFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  GroupFile(const GroupFile&) = delete;
  GroupFile& operator=(const GroupFile&) = delete;

 private:
  const std::string path_;
};

// State shared by the connecting thread and its caller, which may return first: Gloo cannot be
// interrupted and applies its timeout to each of several steps.
struct Connecting {
  Mutex mu;
  CondVar changed;
  bool stopped ABSL_GUARDED_BY(mu) = false;
  std::optional<absl::StatusOr<std::unique_ptr<Communicator>>> result ABSL_GUARDED_BY(mu);
};

absl::StatusOr<std::unique_ptr<Communicator>> ConnectBefore(absl::Time deadline,
                                                            const std::stop_token& stop,
                                                            const GlooOptions& options) {
  const auto connecting = std::make_shared<Connecting>();
  try {
    std::thread([connecting, options] {
      absl::StatusOr<std::unique_ptr<Communicator>> result = ConnectGloo(options);
      const MutexLock lock(connecting->mu);
      connecting->result = std::move(result);
      connecting->changed.NotifyAll();
    }).detach();
  } catch (const std::system_error& error) {
    return StatusOf(absl::StatusCode::kUnavailable,
                    "collective: cannot start a thread: ", error.what());
  }
  const std::stop_callback on_stop(stop, [&connecting] {
    const MutexLock lock(connecting->mu);
    connecting->stopped = true;
    connecting->changed.NotifyAll();
  });
  const MutexLock lock(connecting->mu);
  while (!connecting->result.has_value()) {
    if (connecting->stopped) return absl::AbortedError("connecting was stopped");
    const absl::Duration left = deadline - SystemClock::Get().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("collective: not all ranks have connected in time");
    }
    connecting->changed.WaitFor(connecting->mu, left);
  }
  return *std::move(connecting->result);
}

class GlooBackend final : public CommunicatorBackend {
 public:
  absl::StatusOr<std::string> NewRendezvous() override {
    std::random_device random;
    const auto digits = [&random] { return Hex64((uint64_t{random()} << 32) | random()); };
    return StrCat(digits(), digits());
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) override {
    if (!IsName(place.rendezvous)) {
      return InvalidArgument("rendezvous: Gloo needs ", kNameDigits,
                             " lowercase hexadecimal digits");
    }
    FRESHET_ASSIGN_OR_RETURN(const std::string folder, PrivateFolder());
    GlooOptions options;
    options.rank = place.rank;
    options.size = place.size;
    options.rendezvous_file = StrCat(folder, "/", place.rendezvous);
    // Every rank removes it at the end: the group is connected or has failed then.
    options.file_owner = std::make_shared<GroupFile>(options.rendezvous_file);
    options.connect_timeout = place.timeout;
    return ConnectBefore(SystemClock::Get().Now() + place.timeout, place.stop, options);
  }
};

}  // namespace

std::shared_ptr<CommunicatorBackend> MakeGlooBackend() { return std::make_shared<GlooBackend>(); }

}  // namespace freshet
