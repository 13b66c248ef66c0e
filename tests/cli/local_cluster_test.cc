#include "cli/client/local_cluster.h"

#include <fcntl.h>
#include <sys/file.h>

#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

TEST(LocalCluster, IsFoundByTheAddressOfAController) {
  const ScratchFolder state;
  std::vector<UniqueFd> locks;
  const auto add = [&](const std::string& name, const std::string& text, bool runs = true) {
    state.Write("clusters/" + name + "/cluster.json", text);
    state.Write("clusters/" + name + "/cluster.token", "t\n");
    state.Write("clusters/" + name + "/lock", "");
    UniqueFd lock(::open(state.File("clusters/" + name + "/lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    if (runs) locks.push_back(std::move(lock));
  };
  EXPECT_EQ(LocalClusterTokenFile(state.path(), {"127.0.0.1:7070"}), "");
  add("broken", "{");
  add("strange", "{\"controller\": 7070}");
  for (const char* ended : {"a", "z"}) {
    add(ended, "{\"controller\": \"127.0.0.1:7070\"}", /*runs=*/false);
  }
  EXPECT_EQ(LocalClusterTokenFile(state.path(), {"127.0.0.1:7070"}), "");
  add("one", "{\"controller\": \"127.0.0.1:7070\"}");
  add("two", "{\"controller\": \"127.0.0.1:8070,127.0.0.1:8071\"}");
  const std::string one = state.File("clusters/one/cluster.token");
  EXPECT_EQ(LocalClusterTokenFile(state.path(), {"127.0.0.1:7070"}), one);
  for (const char* other : {"localhost:7070", "[::1]:7070", "127.0.0.2:7070"}) {
    EXPECT_EQ(LocalClusterTokenFile(state.path(), {other}), "") << other;
  }
  EXPECT_EQ(LocalClusterTokenFile(state.path(), {"127.0.0.1:1", "127.0.0.1:8071"}),
            state.File("clusters/two/cluster.token"));
  EXPECT_EQ(LocalClusterTokenFile(state.path(), {"127.0.0.1:9"}), "");
  EXPECT_EQ(LocalClusterTokenFile(state.path(), {"host:7070"}), "");
}

}  // namespace
}  // namespace freshet
