#include "services/runtime/peer_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace freshet::runtime {
namespace {

TEST(PeerName, PutsTheRoleIntoThePattern) {
  EXPECT_EQ(PeerName("freshet-{role}.rl.svc", "trainer"), "freshet-trainer.rl.svc");
  EXPECT_EQ(PeerName("{role}.{role}", "env"), "env.env");
  EXPECT_EQ(PeerName("members.rl.svc", "env"), "members.rl.svc");
  EXPECT_EQ(PeerName("{role}", "{role}x"), "{role}x");
}

TEST(PeerName, IsADnsName) {
  for (const char* good : {"freshet-{role}.rl.svc", "{role}", "members.example.org"}) {
    EXPECT_TRUE(ValidatePeerName(good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string("freshet-{rôle}.svc"), std::string("{Role}.svc"), std::string("a b"),
        std::string("a..b"), std::string(".a"), std::string("*.svc"), std::string("a:7070"),
        std::string(300, 'a')}) {
    const absl::Status refused = ValidatePeerName(bad);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(refused.message()), ::testing::StartsWith("--tls-peer-name"));
  }
}

TEST(PeerName, IsFoundInACertificate) {
  const std::vector<std::string> names = {"localhost", "Freshet-Rollout.rl.svc", "*.many.rl.svc"};
  EXPECT_TRUE(HasDnsName(names, "freshet-rollout.rl.svc"));
  EXPECT_TRUE(HasDnsName(names, "trainer.many.rl.svc"));
  EXPECT_FALSE(HasDnsName(names, "freshet-trainer.rl.svc"));
  EXPECT_FALSE(HasDnsName(names, "a.trainer.many.rl.svc"));
  EXPECT_FALSE(HasDnsName(names, "many.rl.svc"));
  EXPECT_FALSE(HasDnsName({""}, "rollout"));
  EXPECT_FALSE(HasDnsName({}, "rollout"));
}

}  // namespace
}  // namespace freshet::runtime
