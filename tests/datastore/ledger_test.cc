#include "datastore/ledger.h"

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

LedgerRow TrainedRow() {
  LedgerRow row;
  row.seq = 7;
  row.event = LedgerEvent::kTrained;
  row.epoch = 2;
  row.lineage = 1;
  row.step = 41;
  row.train_version = 40;
  row.uid = "job/12/0/3";
  row.prompt = 12;
  row.sample = 3;
  row.loss_tokens = 5;
  row.spans = {{{1, 39}, 0, 2}, {{1, 40}, 2, 5}};
  row.min_version = 39;
  row.max_version = 40;
  return row;
}

TEST(Ledger, TrainedRowHasTheContractsKeysInOrder) {
  EXPECT_EQ(LedgerRowToJson(TrainedRow()),
            R"({"seq":7,"event":"trained","epoch":2,"lineage":1,"step":41,"train_version":40,)"
            R"("uid":"job/12/0/3","prompt":12,"attempt":0,"sample":3,"redo":false,)"
            R"("loss_tokens":5,"masked_tokens":0,"spans":[{"lineage":1,"version":39,"begin":0,)"
            R"("end":2},{"lineage":1,"version":40,"begin":2,"end":5}],"min_version":39,)"
            R"("max_version":40})");
}

TEST(Ledger, OtherRowsHaveTheContractsKeysInOrder) {
  LedgerRow open;
  open.seq = 1;
  open.job = "j";
  open.bound = 2;
  open.disposition = "wait";
  open.groups_per_step = 64;
  open.group_size = 8;
  EXPECT_EQ(LedgerRowToJson(open),
            R"({"seq":1,"event":"open","job":"j","bound":2,"disposition":"wait","B":64,"G":8})");
  LedgerRow resumed;
  resumed.seq = 9;
  resumed.event = LedgerEvent::kResumed;
  resumed.epoch = 3;
  resumed.lineage = 2;
  resumed.parent_lineage = 1;
  resumed.fork_version = 0;
  resumed.digest = "d";
  EXPECT_EQ(LedgerRowToJson(resumed),
            R"({"seq":9,"event":"resumed","epoch":3,"lineage":2,"parent_lineage":1,)"
            R"("fork_version":0,"checkpoint_sha256":"","digest":"d"})");
  resumed.fork_version = -1;
  EXPECT_THAT(LedgerRowToJson(resumed), testing::Not(HasSubstr("fork_version")));
  LedgerRow durable;
  durable.seq = 10;
  durable.event = LedgerEvent::kDurable;
  durable.version = 20;
  durable.checkpoint_sha256 = "c";
  durable.digest = "d";
  EXPECT_EQ(LedgerRowToJson(durable), R"({"seq":10,"event":"durable","lineage":0,"version":20,)"
                                      R"("checkpoint_sha256":"c","digest":"d"})");
}

TEST(Ledger, KeysOfReplayAreThereOnlyWithReplay) {
  LedgerRow open;
  open.job = "j";
  open.groups_per_step = open.group_size = 1;
  open.replay_max_age = 9;
  EXPECT_THAT(LedgerRowToJson(open), HasSubstr(R"("G":1,"replay_max_age":9})"));
  EXPECT_EQ(ParseLedgerRow(LedgerRowToJson(open))->replay_max_age, 9);
  LedgerRow row = TrainedRow();
  row.replay_of = "job/3/0/1";
  EXPECT_THAT(LedgerRowToJson(row), HasSubstr(R"("sample":3,"replay_of":"job/3/0/1","redo")"));
  EXPECT_EQ(ParseLedgerRow(LedgerRowToJson(row))->replay_of, "job/3/0/1");
}

TEST(Ledger, EveryEventRoundTrips) {
  for (const LedgerEvent event :
       {LedgerEvent::kOpen, LedgerEvent::kResumed, LedgerEvent::kDurable, LedgerEvent::kTrained,
        LedgerEvent::kFiltered, LedgerEvent::kDropped, LedgerEvent::kRequeued,
        LedgerEvent::kDead}) {
    LedgerRow row = TrainedRow();
    row.event = event;
    row.job = "a \"quoted\" name";
    row.disposition = "mask";
    row.groups_per_step = 3;
    row.group_size = 2;
    row.fork_version = -1;
    row.version = 17;
    row.redo = true;
    row.attempt = 4;
    row.masked_tokens = 6;
    row.reason = "too_old";
    const std::string line = LedgerRowToJson(row);
    const auto parsed = ParseLedgerRow(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(LedgerRowToJson(*parsed), line);
    EXPECT_EQ(parsed->seq, 7);
    EXPECT_EQ(parsed->event, event);
  }
}

TEST(Ledger, ParsedSampleRowEqualsTheWrittenOne) {
  LedgerRow row = TrainedRow();
  row.event = LedgerEvent::kDropped;
  row.reason = "too_old";
  const auto parsed = ParseLedgerRow(LedgerRowToJson(row));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->spans, row.spans);
  EXPECT_EQ(parsed->uid, row.uid);
  EXPECT_EQ(parsed->train_version, 40);
  EXPECT_EQ(parsed->reason, "too_old");
}

TEST(Ledger, SegmentsAreAKeyOfTheirOwn) {
  LedgerRow row = TrainedRow();
  row.segments = {0, 2};
  const std::string line = LedgerRowToJson(row);
  EXPECT_THAT(line, HasSubstr(R"("segments":[0,2],"min_version")"));
  EXPECT_EQ(ParseLedgerRow(line)->segments, row.segments);
  for (const char* bad : {"7", "[-1]", "[0.5]", "[2147483648]", "[\"0\"]", "{}"}) {
    std::string spoilt = line;
    spoilt.replace(spoilt.find("[0,2]"), 5, bad);
    EXPECT_THAT(Message(ParseLedgerRow(spoilt).status()), HasSubstr("segments")) << bad;
  }
  row.segments.resize(kMaxSegments + 1);
  EXPECT_THAT(Message(ParseLedgerRow(LedgerRowToJson(row)).status()), HasSubstr("segments"));
}

TEST(Ledger, TextThatIsNotUtf8StillMakesALine) {
  LedgerRow row = TrainedRow();
  row.reason = "bad \xff byte\n";
  const std::string line = LedgerRowToJson(row);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(ParseLedgerRow(line).ok());
}

TEST(Ledger, UnknownKeysAreIgnored) {
  std::string line = LedgerRowToJson(TrainedRow());
  line.insert(1, R"("later":{"a":[1]},)");
  EXPECT_TRUE(ParseLedgerRow(line).ok());
}

// A valid line with its single occurrence of `from` replaced.
std::string Spoilt(const std::string& from, const std::string& to) {
  std::string line = LedgerRowToJson(TrainedRow());
  const size_t at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return line.replace(at, from.size(), to);
}

TEST(Ledger, HostileLinesAreRefusedWithOneMessage) {
  const std::string whole = LedgerRowToJson(TrainedRow());
  const std::string cases[] = {
      "",
      " ",
      "null",
      "[]",
      "7",
      "\"seq\"",
      "{}",
      "{\"seq\":1}",
      std::string("\0\x01\xff", 3),
      whole + "x",
      whole + whole,
      Spoilt("\"seq\":7", "\"seq\":-7"),
      Spoilt("\"seq\":7", "\"seq\":7.5"),
      Spoilt("\"seq\":7", "\"seq\":\"7\""),
      Spoilt("\"seq\":7", "\"seq\":99999999999999999999"),
      Spoilt("\"seq\":7", "\"seq\":9223372036854775808"),
      Spoilt("\"seq\":7", "\"seq\":1e400"),
      Spoilt("trained\"", "trianed\""),
      Spoilt("\"trained\"", "3"),
      Spoilt("\"redo\":false", "\"redo\":0"),
      Spoilt("\"uid\":\"job/12/0/3\"", "\"uid\":12"),
      Spoilt("\"uid\":\"job/12/0/3\",", ""),
      Spoilt("\"sample\":3", "\"sample\":2147483648"),
      Spoilt("\"spans\":[", "\"spans\":[7,"),
      Spoilt("\"spans\":[", "\"spans\":[{},"),
      Spoilt("\"begin\":0,\"end\":2", "\"begin\":2,\"end\":2"),
      Spoilt("\"begin\":0,\"end\":2", "\"begin\":-1,\"end\":2"),
      std::string(100'000, '['),
      "{\"a\":" + std::string(100'000, '{'),
      std::string((1 << 20) + 1, ' '),
  };
  for (const std::string& line : cases) {
    const auto parsed = ParseLedgerRow(line);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << line.substr(0, 80);
    EXPECT_THAT(Message(parsed.status()), HasSubstr("ledger line: ")) << line.substr(0, 80);
    EXPECT_EQ(Message(parsed.status()).find('\n'), std::string::npos);
  }
}

TEST(Ledger, EveryPrefixOfALineIsRefused) {
  const std::string whole = LedgerRowToJson(TrainedRow());
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(ParseLedgerRow(whole.substr(0, n)).ok()) << n;
  }
}

TEST(Ledger, TooManySpansAreRefused) {
  LedgerRow row = TrainedRow();
  row.spans.assign(5000, Span{{0, 0}, 0, 1});
  EXPECT_THAT(Message(ParseLedgerRow(LedgerRowToJson(row)).status()), HasSubstr("spans"));
}

TEST(LedgerDigest, IsTheChainOfTheContracts) {
  // printf '' | sha256sum; printf '%s' "$previous" 'job/0/0/0' | sha256sum
  EXPECT_EQ(InitialDigest(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ExtendDigest(InitialDigest(), "job/0/0/0"),
            "d1323ccbbfdc49759a6faa77ad7a2da6a2bf80b6f9cf373c5679b38fa8b22d1e");
  EXPECT_NE(ExtendDigest(ExtendDigest(InitialDigest(), "a"), "b"),
            ExtendDigest(ExtendDigest(InitialDigest(), "b"), "a"));
}

}  // namespace
}  // namespace freshet
