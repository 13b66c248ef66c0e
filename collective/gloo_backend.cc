#include "collective/gloo_backend.h"

#include <filesystem>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/gloo_communicator.h"
#include "collective/nccl_backend.h"

namespace freshet {
namespace {

constexpr size_t kNameDigits = 32;

// The name of a group's file: hexadecimal digits only, so that a caller cannot name another file.
bool IsName(const std::string& name) {
  return name.size() == kNameDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos;
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

class GlooBackend final : public CommunicatorBackend {
 public:
  absl::StatusOr<std::string> NewRendezvous() override {
    std::random_device random;
    const auto digits = [&random] { return Hex64((uint64_t{random()} << 32) | random()); };
    return StrCat(digits(), digits());
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) override {
    if (!IsName(place.rendezvous)) {
      return InvalidArgument("the rendezvous of Gloo has ", kNameDigits, " hexadecimal digits");
    }
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (error) {
      return StatusOf(absl::StatusCode::kUnavailable, "no folder for temporary files; set TMPDIR");
    }
    GlooOptions options;
    options.rank = place.rank;
    options.size = place.size;
    options.rendezvous_file = (folder / StrCat("freshet-group-", place.rendezvous)).string();
    if (place.rank == 0) options.file_owner = std::make_shared<GroupFile>(options.rendezvous_file);
    options.connect_timeout = place.timeout;
    return ConnectGloo(options);
  }
};

}  // namespace

std::shared_ptr<CommunicatorBackend> MakeGlooBackend() { return std::make_shared<GlooBackend>(); }

absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenBackend(const std::string& name) {
  if (name == "gloo") return MakeGlooBackend();
  if (name == "nccl") return OpenNcclBackend();
  return absl::UnimplementedError(StrCat("no backend '", name.substr(0, 100), "'"));
}

}  // namespace freshet
