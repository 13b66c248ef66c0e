#include "rollout/sessions/session_registry.h"

#include "gtest/gtest.h"
#include "tests/rollout/sessions/toy_chat_tokenizer.h"

namespace freshet {
namespace {

TEST(SessionRegistry, FindsSessionsByTheirKeys) {
  const ToyChatTokenizer tokenizer;
  SessionRegistry registry(tokenizer, 2);
  const absl::StatusOr<std::string> a = registry.Open({});
  const absl::StatusOr<std::string> b = registry.Open({});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(*a, *b);
  EXPECT_NE(registry.Find(*a)->get(), registry.Find(*b)->get());
  EXPECT_EQ(registry.Find("any")->get(), nullptr);
  EXPECT_EQ(registry.Find("session-0").status().code(), absl::StatusCode::kUnauthenticated);
}

TEST(SessionRegistry, BoundsItsSessions) {
  const ToyChatTokenizer tokenizer;
  SessionRegistry registry(tokenizer, 1);
  const absl::StatusOr<std::string> key = registry.Open({});
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(registry.Open({}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(registry.Close(*key).requests, 0);
  EXPECT_EQ(registry.Find(*key).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(registry.Open({}).ok());
}

}  // namespace
}  // namespace freshet
