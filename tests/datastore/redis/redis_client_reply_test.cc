#include "datastore/redis/redis_client_reply.h"

#include <string>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr int64_t kLimit = 1 << 20;

// The replies in `wire`, fed in pieces of `piece` bytes; the error ends them.
struct Parsed {
  std::vector<RedisRawReply> replies;
  absl::Status status;
};

Parsed Parse(const std::string& wire, size_t piece, int64_t limit = kLimit) {
  RedisReplyParser parser(limit);
  Parsed parsed;
  for (size_t begin = 0; begin < wire.size(); begin += piece) {
    parsed.status = parser.Feed(std::string_view(wire).substr(begin, piece));
    while (parsed.status.ok()) {
      auto reply = parser.Next();
      parsed.status = reply.status();
      if (!reply.ok() || !reply->has_value()) break;
      parsed.replies.push_back(**std::move(reply));
    }
    if (!parsed.status.ok()) break;
  }
  return parsed;
}

TEST(RedisReplyParser, ReadsEveryKindOfReplyInPiecesOfAnySize) {
  const std::string wire =
      "+OK\r\n:-42\r\n$5\r\na\r\nbc\r\n$-1\r\n-OOM "
      "no\r\n*3\r\n:1\r\n*2\r\n$0\r\n\r\n$-1\r\n-E\r\n*0\r\n";
  for (size_t piece = 1; piece <= wire.size(); ++piece) {
    const Parsed parsed = Parse(wire, piece);
    ASSERT_TRUE(parsed.status.ok()) << parsed.status;
    ASSERT_EQ(parsed.replies.size(), 7u) << piece;
    EXPECT_EQ(parsed.replies[0].reply.kind, RedisReply::Kind::kStatus);
    EXPECT_EQ(parsed.replies[0].reply.text, "OK");
    EXPECT_EQ(parsed.replies[1].reply.kind, RedisReply::Kind::kInteger);
    EXPECT_EQ(parsed.replies[1].reply.integer, -42);
    EXPECT_EQ(parsed.replies[2].reply.kind, RedisReply::Kind::kString);
    EXPECT_EQ(parsed.replies[2].reply.text, "a\r\nbc");
    EXPECT_TRUE(parsed.replies[3].reply.IsNil());
    EXPECT_TRUE(parsed.replies[4].is_error);
    EXPECT_EQ(parsed.replies[4].reply.text, "OOM no");
    const RedisReply& nested = parsed.replies[5].reply;
    EXPECT_FALSE(parsed.replies[5].is_error);
    ASSERT_EQ(nested.items.size(), 3u);
    ASSERT_EQ(nested.items[1].items.size(), 2u);
    EXPECT_EQ(nested.items[1].items[0].kind, RedisReply::Kind::kString);
    EXPECT_TRUE(nested.items[1].items[1].IsNil());
    EXPECT_EQ(nested.items[2].text, "E");
    EXPECT_EQ(parsed.replies[6].reply.kind, RedisReply::Kind::kArray);
    EXPECT_TRUE(parsed.replies[6].reply.items.empty());
  }
}

TEST(RedisReplyParser, KnowsWhetherBytesAreLeft) {
  RedisReplyParser parser(kLimit);
  EXPECT_FALSE(parser.HasLeftover());
  ASSERT_TRUE(parser.Feed("+OK\r\n+").ok());
  ASSERT_TRUE(parser.Next()->has_value());
  EXPECT_TRUE(parser.HasLeftover());
  ASSERT_TRUE(parser.Feed("OK\r\n").ok());
  ASSERT_TRUE(parser.Next()->has_value());
  EXPECT_FALSE(parser.HasLeftover());
}

TEST(RedisReplyParser, ReplyOverTheByteLimitIsDataLoss) {
  const std::string fits = StrCat("$1000\r\n", std::string(1000, 'x'), "\r\n");  // 1009 bytes
  EXPECT_TRUE(Parse(fits, 64, 1009).status.ok());
  EXPECT_EQ(Parse(fits, 64, 1008).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Parse("$2000000000\r\n" + std::string(2000, 'x'), 64, 1009).status.code(),
            absl::StatusCode::kDataLoss);
}

TEST(RedisReplyParser, ManySmallRepliesDoNotAddUpToTheLimit) {
  std::string wire;
  for (int i = 0; i < 1000; ++i) wire += "+PONG\r\n";
  const Parsed parsed = Parse(wire, 97, 1024);
  EXPECT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.replies.size(), 1000u);
}

TEST(RedisReplyParser, ReplyDeeperThanTheLimitIsDataLoss) {
  std::string wire;
  for (int i = 0; i < kMaxRedisReplyDepth; ++i) wire += "*1\r\n";
  EXPECT_TRUE(Parse(wire + ":1\r\n", 1024).status.ok());
  EXPECT_EQ(Parse(wire + "*1\r\n:1\r\n", 1024).status.code(), absl::StatusCode::kDataLoss);
}

TEST(RedisReplyParser, AnnouncedElementsTakeNoMemory) {
  const Parsed parsed = Parse("*2147483647\r\n*2147483647\r\n:1\r\n", 1024);
  EXPECT_TRUE(parsed.status.ok());
  EXPECT_TRUE(parsed.replies.empty());
}

TEST(RedisReplyParser, MoreElementsThanTheLimitAreDataLoss) {
  std::string wire = "*2147483647\r\n";
  for (int64_t i = 0; i < kMaxRedisReplyElements; ++i) wire += ":1\r\n";
  EXPECT_EQ(Parse(wire, 64 << 10, int64_t{1} << 30).status.code(), absl::StatusCode::kDataLoss);
}

TEST(RedisReplyParser, WhatIsNotTheProtocolIsDataLoss) {
  for (const char* wire : {"HTTP/1.1 400 Bad Request\r\n", "$x\r\n", ":12a\r\n", "*-7\r\n", "\r\n",
                           "$3\r\nabcdef\r\n"}) {
    EXPECT_EQ(Parse(wire, 1024).status.code(), absl::StatusCode::kDataLoss) << wire;
  }
}

TEST(RedisReplyParser, ChangedBytesNeverCrash) {
  const std::string wire = "*3\r\n$3\r\nabc\r\n:123\r\n*1\r\n$-1\r\n+OK\r\n-ERR x\r\n";
  for (size_t at = 0; at < wire.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = wire;
      changed[at] = static_cast<char>(value);
      const absl::Status status = Parse(changed, 5).status;
      EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    }
  }
}

TEST(RedisReplyParser, RandomBytesNeverCrash) {
  constexpr char kAlphabet[] = "*$:+-\r\n0123456789abc";
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    std::string wire(Mix64(seed) % 64, '\0');
    for (size_t i = 0; i < wire.size(); ++i) {
      wire[i] = kAlphabet[RandomBits(seed, i) % (sizeof(kAlphabet) - 1)];
    }
    const absl::Status status = Parse(wire, 1 + seed % 9).status;
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
  }
}

TEST(RedisErrorStatus, FirstWordGivesTheCode) {
  const struct {
    const char* text;
    absl::StatusCode code;
  } cases[] = {
      {"LOADING Redis is loading the dataset in memory", absl::StatusCode::kUnavailable},
      {"READONLY You can't write against a read only replica.", absl::StatusCode::kUnavailable},
      {"MASTERDOWN Link with MASTER is down", absl::StatusCode::kUnavailable},
      {"BUSY Redis is busy running a script", absl::StatusCode::kUnavailable},
      {"ERR max number of clients reached", absl::StatusCode::kUnavailable},
      {"OOM command not allowed when used memory > 'maxmemory'.",
       absl::StatusCode::kResourceExhausted},
      {"MISCONF Errors writing to the AOF file: No space left on device",
       absl::StatusCode::kUnavailable},
      {"NOAUTH Authentication required.", absl::StatusCode::kPermissionDenied},
      {"WRONGPASS invalid username-password pair", absl::StatusCode::kPermissionDenied},
      {"NOPERM this user has no permissions", absl::StatusCode::kPermissionDenied},
      {"WRONGTYPE Operation against a key", absl::StatusCode::kFailedPrecondition},
      {"ERR unknown command", absl::StatusCode::kInternal},
      {"OOMPH is another word", absl::StatusCode::kInternal},
      {"", absl::StatusCode::kInternal},
  };
  for (const auto& tested : cases) {
    const absl::Status status = RedisErrorStatus(tested.text, "SET");
    EXPECT_EQ(status.code(), tested.code) << tested.text;
    EXPECT_NE(Message(status).find(tested.text), std::string::npos);
  }
}

}  // namespace
}  // namespace freshet
