#include "services/runtime/reward_flags.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::runtime {
namespace {

using testing::ElementsAre;
using testing::Pair;

bool Takes(const std::string& flag, const std::string& value) {
  CommandLine app("test", "test");
  RewardFlags flags;
  AddRewardFlags(app, flags);
  const char* arguments[] = {"test", flag.c_str(), value.c_str()};
  return !app.Parse(3, const_cast<char**>(arguments)).has_value();
}

TEST(RewardFlags, PlaintextIsForLoopback) {
  EXPECT_TRUE(Takes("--sandbox", "http://127.0.0.1:8100"));
  EXPECT_TRUE(Takes("--sandbox", "https://sandbox:8100"));
  EXPECT_TRUE(Takes("--judge", "http://localhost:8000/v1"));
  EXPECT_TRUE(Takes("--judge", "http://[::1]:8000/v1/"));
  EXPECT_TRUE(Takes("--judge", "https://llm.example.com/v1"));
  for (const char* address : {"http://10.0.0.1:8000/v1", "http://llm.example.com/v1",
                              "http://unix/v1", "http://localhost:80@10.0.0.1:80/v1"}) {
    EXPECT_FALSE(Takes("--judge", address)) << address;
  }
  EXPECT_FALSE(Takes("--sandbox", "http://10.0.0.1:8100"));
  EXPECT_FALSE(Takes("--python-rewards", "10.0.0.1:7080"));
}

TEST(RewardFlags, MalformedAddressesAreRefused) {
  for (const char* address :
       {"llm.example.com", "ftp://h/v1", "https://", "https:///v1", "https://h:x/v1",
        "https://user:key@h/v1", "https://h/v1?a=b", "https://h/v1#a", "https://h /v1"}) {
    EXPECT_FALSE(Takes("--judge", address)) << address;
  }
  for (const char* address : {"https://h", "https://h:1/path", "h:1"}) {
    EXPECT_FALSE(Takes("--sandbox", address)) << address;
  }
}

TEST(RewardFlags, AreHandedOnAsGiven) {
  RewardFlags flags;
  EXPECT_THAT(RewardArguments(flags), ElementsAre());
  flags.judge = {"https://h/v1", "", "/key"};
  flags.reward_model = {"https://m", "/ca", ""};
  EXPECT_THAT(RewardArguments(flags),
              ElementsAre(Pair("--judge", "https://h/v1"), Pair("--judge-token-file", "/key"),
                          Pair("--reward-model", "https://m"), Pair("--reward-model-ca", "/ca")));
}

}  // namespace
}  // namespace freshet::runtime
