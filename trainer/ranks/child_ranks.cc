#include "trainer/ranks/child_ranks.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/subprocess.h"
#include "trainer/ranks/message_socket.h"

namespace freshet {
namespace {

template <typename... Args>
absl::Status Unavailable(const Args&... args) {
  return StatusOf(absl::StatusCode::kUnavailable, args...);
}

// The folder in which the ranks of a group find each other.
class RendezvousFolder {
 public:
  RendezvousFolder() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "freshet-ranks-XXXXXX").string();
    if (!error && ::mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~RendezvousFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  RendezvousFolder(const RendezvousFolder&) = delete;
  RendezvousFolder& operator=(const RendezvousFolder&) = delete;

  bool ok() const { return !path_.empty(); }
  std::string file(const char* name) const { return StrCat(path_, "/", name); }

 private:
  std::string path_;
};

class ChildRank final : public RankPeer {
 public:
  explicit ChildRank(std::unique_ptr<Subprocess> process) : process_(std::move(process)) {}
  void Kill() override { process_->Kill(); }
  std::string Ending() override {
    const absl::Status ending = process_->Ending();
    return ending.ok() ? "has ended" : Message(ending);
  }

 private:
  const std::unique_ptr<Subprocess> process_;
};

absl::StatusOr<RankLink> StartChild(const std::vector<std::string>& argv, int number) {
  FRESHET_ASSIGN_OR_RETURN(auto ends, SocketPair());
  SubprocessOptions options;
  options.argv = argv;
  options.standard_input = ends.second.get();
  FRESHET_ASSIGN_OR_RETURN(auto process, Subprocess::Start(options));
  return RankLink{number, std::move(ends.first), std::make_unique<ChildRank>(std::move(process))};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> ChildRankStarter::Start(int ranks) {
  const auto folder = std::make_shared<const RendezvousFolder>();
  if (!folder->ok()) return Unavailable("cannot make a folder for temporary files; set TMPDIR");
  RankLinkOptions options = options_;
  options.start.set_rendezvous_file(folder->file("group"));
  const std::string& sharding = options.start.spec().trainer().sharding();
  if (!sharding.empty() && sharding != "none") {
    options.start.set_background_file(folder->file("background"));
  }
  options.file_owner = folder;
  std::vector<RankLink> links;
  for (int rank = 1; rank < ranks; ++rank) {
    FRESHET_ASSIGN_OR_RETURN(RankLink link, StartChild(argv_, rank));
    links.push_back(std::move(link));
  }
  return ConnectRanks(std::move(links), options);
}

}  // namespace freshet
