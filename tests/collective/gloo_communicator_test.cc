#include "collective/gloo_communicator.h"

#include <csignal>

#include "tests/contract/communicator_contract.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

class GlooMaker {
 public:
  absl::StatusOr<std::unique_ptr<Communicator>> Make(int rank, int size, int group) {
    GlooOptions options;
    options.rank = rank;
    options.size = size;
    options.rendezvous_file = dir_.File(StrCat("group-", group));
    return ConnectGloo(options);
  }

 private:
  TestDirectory dir_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Gloo, CommunicatorContract, GlooMaker);

TEST(ConnectGloo, ARankThatNeverComesIsUnavailable) {
  TestDirectory dir;
  GlooOptions options;
  options.size = 2;
  options.rendezvous_file = dir.File("group");
  options.connect_timeout = absl::Milliseconds(300);
  EXPECT_EQ(ConnectGloo(options).status().code(), absl::StatusCode::kUnavailable);
  options.rank = 2;
  EXPECT_EQ(ConnectGloo(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.rank = 0;
  options.host = "no.such.host.invalid";
  EXPECT_EQ(ConnectGloo(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ConnectGloo, IgnoresSigpipe) {
  const auto old = std::signal(SIGPIPE, SIG_DFL);
  TestDirectory dir;
  GlooOptions options;
  options.rendezvous_file = dir.File("group");
  ASSERT_TRUE(ConnectGloo(options).ok());
  EXPECT_EQ(std::signal(SIGPIPE, old), SIG_IGN);
}

}  // namespace
}  // namespace freshet
