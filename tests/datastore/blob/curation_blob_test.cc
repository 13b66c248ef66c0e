#include "datastore/blob/curation_blob.h"

#include <cstring>
#include <memory>
#include <string>

#include "base/digest.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

PooledSuccess SuccessAt(int64_t version, const std::string& uid) {
  Response response;
  response.response_ids = {7, 8};
  response.behavior_logprobs = {-0.5F, -0.25F};
  response.loss_mask = {1, 1};
  response.spans = {{{1, version}, 0, 2}};
  response.finish = FinishReason::kStop;
  Score score;
  score.reward = 1.5;
  score.components = {{"exact", 1.0}};
  return {uid, std::make_shared<const Response>(response), std::make_shared<const Score>(score),
          version};
}

CurationState SomeState() {
  CurationState state;
  state.successes = {{"a", SuccessAt(3, "job/1/0/2")}, {"b", SuccessAt(5, "job/4/1/0")}};
  state.rows = {{"a", {1.5, 4, 17}}, {"c", {0, 8, 0}}};
  state.tasks = {{"", {31, 62.5, 99}}};
  state.min_reward = 0.75;
  return state;
}

absl::StatusCode CodeOf(const std::string& record) {
  return DecodeCuration(record).status().code();
}

// The record with a checksum that fits.
std::string SealedAgain(std::string record) {
  const size_t content = record.size() - sizeof(uint64_t);
  const uint64_t checksum = Xxh3(record.data(), content);
  std::memcpy(record.data() + content, &checksum, sizeof(checksum));
  return record;
}

TEST(CurationBlob, TheStateComesBack) {
  const CurationState sent = SomeState();
  const EncodedCuration encoded = EncodeCuration(sent);
  EXPECT_EQ(encoded.left_out, 0);
  const auto got = DecodeCuration(encoded.record);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->rows, sent.rows);
  EXPECT_EQ(got->tasks, sent.tasks);
  EXPECT_EQ(got->min_reward, 0.75);
  ASSERT_EQ(got->successes.size(), 2U);
  const PooledSuccess& success = got->successes.at("b");
  EXPECT_EQ(success.uid, "job/4/1/0");
  EXPECT_EQ(success.response->response_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(success.response->spans, (std::vector<Span>{{{1, 5}, 0, 2}}));
  EXPECT_EQ(success.score->reward, 1.5);
  EXPECT_EQ(success.score->components, (std::map<std::string, double>{{"exact", 1.0}}));
  EXPECT_TRUE(DecodeCuration(EncodeCuration({}).record).ok());
}

TEST(CurationBlob, TheNewestSuccessesAreKeptIfThereIsNoRoomForAll) {
  const EncodedCuration encoded = EncodeCuration(SomeState(), /*max_success_bytes=*/250);
  EXPECT_EQ(encoded.left_out, 1);
  const auto got = DecodeCuration(encoded.record);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->successes.size(), 1U);
  EXPECT_EQ(got->successes.begin()->first, "b");
  EXPECT_EQ(got->rows.size(), 2U);
}

TEST(CurationBlob, ASuccessThatDoesNotFitLeavesRoomForOlderOnes) {
  CurationState state = SomeState();
  Response response = *state.successes.at("b").response;
  response.response_ids.resize(1000, 7);
  response.behavior_logprobs.resize(1000, -1);
  response.loss_mask.resize(1000, 1);
  response.spans[0].end = 1000;
  state.successes.at("b").response = std::make_shared<const Response>(response);
  state.left_out = 3;
  const EncodedCuration encoded = EncodeCuration(state, /*max_success_bytes=*/250);
  EXPECT_EQ(encoded.left_out, 4);
  const auto got = DecodeCuration(encoded.record);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->successes.size(), 1U);
  EXPECT_EQ(got->successes.begin()->first, "a");
}

TEST(CurationBlob, LongNamesOfTasksAreLeftOut) {
  CurationState state = SomeState();
  state.tasks[std::string(kMaxCurationText + 1, 'x')] = {1, 2, 3};
  const auto got = DecodeCuration(EncodeCuration(state).record);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->tasks, SomeState().tasks);
}

TEST(CurationBlob, ChangedAndTruncatedRecordsAreDataLoss) {
  const std::string record = EncodeCuration(SomeState()).record;
  for (size_t i = 0; i < record.size(); ++i) {
    EXPECT_EQ(CodeOf(record.substr(0, i)), absl::StatusCode::kDataLoss) << i;
    std::string changed = record;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    EXPECT_EQ(CodeOf(changed), absl::StatusCode::kDataLoss) << i;
  }
  EXPECT_EQ(CodeOf(record + "x"), absl::StatusCode::kDataLoss);
}

TEST(CurationBlob, AHostileRecordIsReadOrRefused) {
  const std::string record = EncodeCuration(SomeState()).record;
  for (size_t i = 0; i + sizeof(uint64_t) < record.size(); ++i) {
    for (const char byte : {'\0', '\x7f', '\xff'}) {
      std::string changed = record;
      changed[i] = byte;
      const absl::StatusCode code = CodeOf(SealedAgain(changed));
      EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kDataLoss) << i;
    }
  }
  std::string version = record;
  version[0] = 2;
  EXPECT_EQ(CodeOf(SealedAgain(version)), absl::StatusCode::kDataLoss);
  std::string kind = record;
  kind[1] = 1;
  EXPECT_EQ(CodeOf(SealedAgain(kind)), absl::StatusCode::kDataLoss);
  // The count of successes, after version, kind and min_reward.
  for (const uint32_t count : {3U, 1'000'000U, 1'000'001U, 0xffffffffU}) {
    std::string counted = record;
    std::memcpy(counted.data() + 10, &count, sizeof(count));
    EXPECT_EQ(CodeOf(SealedAgain(counted)), absl::StatusCode::kDataLoss) << count;
  }
  // The key of the second success becomes that of the first one.
  std::string again = record;
  const size_t second = again.find(std::string("\x01\0\0\0b", 5));
  ASSERT_NE(second, std::string::npos);
  again[second + 4] = 'a';
  EXPECT_EQ(CodeOf(SealedAgain(again)), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace freshet
