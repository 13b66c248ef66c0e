#include "trainer/ranks/child_ranks.h"

#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/message_socket.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/subprocess.h"

namespace freshet {
namespace {

constexpr char kVisibleGpus[] = "CUDA_VISIBLE_DEVICES";

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

absl::StatusOr<RankLink> StartChild(const std::vector<std::string>& argv, int number,
                                    bool gpu_each) {
  FRESHET_ASSIGN_OR_RETURN(auto ends, SocketPair());
  SubprocessOptions options;
  options.argv = argv;
  options.standard_input = ends.second.get();
  if (gpu_each) {
    options.environment.push_back(
        StrCat(kVisibleGpus, "=", OnlyGpu(std::getenv(kVisibleGpus), number)));
  }
  FRESHET_ASSIGN_OR_RETURN(auto process, Subprocess::Start(options));
  return RankLink{number, std::move(ends.first), std::make_unique<ChildRank>(std::move(process))};
}

}  // namespace

std::string OnlyGpu(const char* visible, int number) {
  if (visible == nullptr) return StrCat(number);
  const std::vector<std::string> gpus = absl::StrSplit(visible, ',');
  return number < std::ssize(gpus) ? gpus[static_cast<size_t>(number)] : "";
}

absl::StatusOr<std::unique_ptr<RankGroup>> ChildRankStarter::Start(int ranks) {
  RankLinkOptions options = options_;
  options.start.set_here(ranks);
  std::vector<RankLink> links;
  for (int rank = 1; rank < ranks; ++rank) {
    FRESHET_ASSIGN_OR_RETURN(RankLink link, StartChild(argv_, rank, gpu_each_));
    links.push_back(std::move(link));
  }
  return ConnectRanks(std::move(links), options);
}

}  // namespace freshet
