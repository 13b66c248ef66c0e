#include "controller/redis_space.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

TEST(RedisReading, IsReadFromInfo) {
  const RedisReading reading = ParseRedisInfo(
      "# Memory\r\nused_memory:71694192\r\nused_memory_human:68.37M\r\nmaxmemory:3000000\r\n"
      "maxmemory_policy:noeviction\r\n\r\n# Errorstats\r\nerrorstat_ERR:count=7\r\n"
      "errorstat_OOM:count=42\r\n\r\n# Stats\r\nevicted_keys:12\r\nevicted_clients:3\r\n");
  EXPECT_EQ(reading.used_bytes, 71694192);
  EXPECT_EQ(reading.bound_bytes, 3000000);
  EXPECT_EQ(reading.refused, 42);
  EXPECT_EQ(reading.evicted, 12);
}

TEST(RedisReading, TheAppendOnlyFileIsWellWhenAllOfItIs) {
  const auto well = [](const std::string& enabled, const std::string& write,
                       const std::string& rewrite) {
    return ParseRedisInfo(StrCat("aof_enabled:", enabled, "\r\naof_rewrite_in_progress:0\r\n",
                                 "aof_last_bgrewrite_status:", rewrite,
                                 "\r\naof_last_write_status:", write, "\r\n"))
        .append_only_ok;
  };
  EXPECT_TRUE(well("1", "ok", "ok"));
  EXPECT_FALSE(well("0", "ok", "ok"));
  EXPECT_FALSE(well("1", "err", "ok"));
  EXPECT_FALSE(well("1", "ok", "err"));
  EXPECT_FALSE(ParseRedisInfo("aof_enabled:1\n").append_only_ok);
}

TEST(RedisReading, TakesAnyText) {
  for (const char* text : {"", "\n", "used_memory", "used_memory:", "used_memory:x\nmaxmemory:-",
                           "errorstat_OOM:count=", "evicted_keys:\r", ":::\n:"}) {
    EXPECT_EQ(ParseRedisInfo(text).used_bytes, 0) << text;
    EXPECT_EQ(ParseRedisInfo(text).refused, 0) << text;
    EXPECT_EQ(ParseRedisInfo(text).evicted, 0) << text;
  }
}

TEST(GrowingTotal, CountsOnOverRestartsOfTheServer) {
  GrowingTotal total;
  EXPECT_EQ(total.Take(5), 5);
  EXPECT_EQ(total.Take(7), 7);
  EXPECT_EQ(total.Take(0), 7);  // server restart
  EXPECT_EQ(total.Take(3), 10);
  EXPECT_EQ(total.Take(3), 10);
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
  EXPECT_TRUE(space.Take({90, 100, 7}, now).ok());  // earlier refusals do not count
  EXPECT_FALSE(space.Take({90, 100, 8}, now).ok());
  now += RedisSpace::kAfterRefusal - absl::Milliseconds(1);
  EXPECT_FALSE(space.Take({90, 100, 8}, now).ok());
  now += absl::Milliseconds(1);
  EXPECT_TRUE(space.Take({90, 100, 8}, now).ok());
  EXPECT_TRUE(space.Take({90, 100, 0}, now).ok());  // server restart
  EXPECT_FALSE(space.Take({90, 100, 1}, now).ok());
}

}  // namespace
}  // namespace freshet
