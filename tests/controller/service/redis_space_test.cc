#include "controller/service/redis_space.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

using testing::HasSubstr;

TEST(RedisMemory, IsReadFromInfo) {
  const RedisMemory memory = ParseRedisMemory(
      "# Memory\r\nused_memory:71694192\r\nused_memory_human:68.37M\r\nmaxmemory:3000000\r\n"
      "maxmemory_policy:noeviction\r\n\r\n# Errorstats\r\nerrorstat_ERR:count=7\r\n"
      "errorstat_OOM:count=42\r\n");
  EXPECT_EQ(memory.used_bytes, 71694192);
  EXPECT_EQ(memory.bound_bytes, 3000000);
  EXPECT_EQ(memory.refused, 42);
}

TEST(RedisMemory, TakesAnyText) {
  for (const char* text : {"", "\n", "used_memory", "used_memory:", "used_memory:x\nmaxmemory:-",
                           "errorstat_OOM:count=", ":::\n:"}) {
    EXPECT_EQ(ParseRedisMemory(text).used_bytes, 0) << text;
    EXPECT_EQ(ParseRedisMemory(text).refused, 0) << text;
  }
}

TEST(RedisSpace, IsFullAtTheLimit) {
  RedisSpace space;
  const absl::Time now = absl::UnixEpoch();
  EXPECT_TRUE(space.Take({99, 100, 0}, now).ok());
  EXPECT_TRUE(space.Take({1'000'000, 0, 0}, now).ok());  // no limit
  const absl::Status full = space.Take({2'500'000, 2'400'000, 0}, now);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(full), HasSubstr("2.5 of 2.4 MB used (maxmemory)"));
  EXPECT_TRUE(space.Take({99, 100, 0}, now).ok());
}

TEST(RedisSpace, IsFullForAWhileAfterARefusal) {
  RedisSpace space;
  absl::Time now = absl::UnixEpoch();
  EXPECT_TRUE(space.Take({90, 100, 7}, now).ok());  // of the past
  EXPECT_FALSE(space.Take({90, 100, 8}, now).ok());
  now += RedisSpace::kAfterRefusal - absl::Milliseconds(1);
  EXPECT_FALSE(space.Take({90, 100, 8}, now).ok());
  now += absl::Milliseconds(1);
  EXPECT_TRUE(space.Take({90, 100, 8}, now).ok());
  EXPECT_TRUE(space.Take({90, 100, 0}, now).ok());  // the server began anew
  EXPECT_FALSE(space.Take({90, 100, 1}, now).ok());
}

}  // namespace
}  // namespace freshet
