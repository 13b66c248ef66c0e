#include "datastore/blob/trajectory_blob.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/random.h"
#include "datastore/blob/blob_record.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

Response SampleResponse() {
  Response response;
  response.response_ids = {5, -1, 2147483647, 0, 9, 11, 12, 13, 14};
  response.behavior_logprobs = {-0.5f, -0.0f, -1e-38f, -3.25f, -7.f, -8.f, -9.f, -10.f, -11.f};
  response.loss_mask = {1, 1, 0, 1, 0, 0, 1, 1, 1};
  response.spans = {{{0, 3}, 0, 4}, {{1, 4}, 4, 9}};
  response.finish = FinishReason::kLength;
  response.env_reward = -0.25;
  return response;
}

Response TruncatedResponse() {
  Response response = SampleResponse();
  response.sampling_logprobs = {-0.25f, 0.f, -1e-38f, -3.f, -6.f, -7.f, -8.f, -9.f, -10.f};
  return response;
}

Response EpisodeResponse() {
  Response response = SampleResponse();
  response.step_rewards = {{4, -0.5}, {9, 0.25}};
  return response;
}

Response SegmentedResponse() {
  Response response = SampleResponse();
  response.segments = {0, 4, 7};
  return response;
}

Prompt SamplePrompt() {
  Prompt prompt;
  prompt.ordinal = 1'234'567'890'123;
  prompt.first_attempt = 7;
  prompt.prompt_ids = {1, 2, 3};
  prompt.attributes = {{"answer", "42"}, {"prompt", std::string("a\0b", 3)}, {"", "empty key"}};
  return prompt;
}

Score SampleScore() {
  Score score;
  score.reward = 0.75;
  score.components = {{"exact", 1.0}, {"format", 0.5}};
  score.outcome = ScoreOutcome::kWrongFormat;
  return score;
}

Score EpisodeScore() {
  Score score = SampleScore();
  score.step_rewards = {{4, -1.5}, {9, 0.75}};
  return score;
}

// Every record kind, with a check that its decoder returns DATA_LOSS.
struct Kind {
  const char* name;
  std::string blob;
  std::function<absl::StatusCode(std::string_view)> decode;
};

std::vector<Kind> AllKinds() {
  return {
      {"response", *EncodeResponse(SampleResponse()),
       [](std::string_view blob) { return DecodeResponse(blob).status().code(); }},
      {"truncated", *EncodeResponse(TruncatedResponse()),
       [](std::string_view blob) { return DecodeResponse(blob).status().code(); }},
      {"episode", *EncodeResponse(EpisodeResponse()),
       [](std::string_view blob) { return DecodeResponse(blob).status().code(); }},
      {"segments", *EncodeResponse(SegmentedResponse()),
       [](std::string_view blob) { return DecodeResponse(blob).status().code(); }},
      {"prompt", *EncodePrompt(SamplePrompt()),
       [](std::string_view blob) { return DecodePrompt(blob).status().code(); }},
      {"score", *EncodeScore(SampleScore()),
       [](std::string_view blob) { return DecodeScore(blob).status().code(); }},
      {"episode's score", *EncodeScore(EpisodeScore()),
       [](std::string_view blob) { return DecodeScore(blob).status().code(); }},
  };
}

// Returns the record with a recomputed checksum, as an attacker would.
std::string Resealed(std::string blob) {
  const size_t content = blob.size() - sizeof(uint64_t);
  const uint64_t checksum = Xxh3(blob.data(), content);
  std::memcpy(blob.data() + content, &checksum, sizeof(checksum));
  return blob;
}

TEST(TrajectoryBlob, ResponseComesBackBitForBit) {
  const Response sent = SampleResponse();
  const auto got = DecodeResponse(*EncodeResponse(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->response_ids, sent.response_ids);
  EXPECT_EQ(std::memcmp(got->behavior_logprobs.data(), sent.behavior_logprobs.data(),
                        sent.behavior_logprobs.size() * sizeof(float)),
            0);
  EXPECT_EQ(got->loss_mask, sent.loss_mask);
  EXPECT_EQ(got->spans, sent.spans);
  EXPECT_EQ(got->finish, sent.finish);
  EXPECT_EQ(got->env_reward, sent.env_reward);
}

TEST(TrajectoryBlob, FinishReasonsComeBackAndOthersAreDataLoss) {
  Response response = SampleResponse();
  response.finish = FinishReason::kNotAsked;
  EXPECT_EQ(DecodeResponse(*EncodeResponse(response))->finish, FinishReason::kNotAsked);
  response.finish = static_cast<FinishReason>(4);
  EXPECT_EQ(DecodeResponse(*EncodeResponse(response)).status().code(), absl::StatusCode::kDataLoss);
}

TEST(TrajectoryBlob, SamplingLogprobsComeBack) {
  const Response sent = TruncatedResponse();
  const auto got = DecodeResponse(*EncodeResponse(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->sampling_logprobs, sent.sampling_logprobs);
  EXPECT_EQ(got->behavior_logprobs, sent.behavior_logprobs);
  EXPECT_EQ(got->env_reward, sent.env_reward);
}

TEST(TrajectoryBlob, StepRewardsComeBack) {
  Response sent = EpisodeResponse();
  auto got = DecodeResponse(*EncodeResponse(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->step_rewards, sent.step_rewards);
  EXPECT_TRUE(got->sampling_logprobs.empty());
  sent.sampling_logprobs = TruncatedResponse().sampling_logprobs;
  got = DecodeResponse(*EncodeResponse(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->step_rewards, sent.step_rewards);
  EXPECT_EQ(got->sampling_logprobs, sent.sampling_logprobs);
  const auto score = DecodeScore(*EncodeScore(EpisodeScore()));
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->step_rewards, EpisodeScore().step_rewards);
  EXPECT_EQ(score->components, EpisodeScore().components);
}

TEST(TrajectoryBlob, SegmentsComeBack) {
  Response sent = SegmentedResponse();
  auto got = DecodeResponse(*EncodeResponse(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->segments, sent.segments);
  EXPECT_TRUE(got->sampling_logprobs.empty());
  EXPECT_TRUE(got->step_rewards.empty());
  sent.sampling_logprobs = TruncatedResponse().sampling_logprobs;
  sent.step_rewards = EpisodeResponse().step_rewards;
  got = DecodeResponse(*EncodeResponse(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->segments, sent.segments);
  EXPECT_EQ(got->sampling_logprobs, sent.sampling_logprobs);
  EXPECT_EQ(got->step_rewards, sent.step_rewards);
  sent.segments.resize(kMaxSegments + 1);
  EXPECT_EQ(EncodeResponse(sent).status().code(), absl::StatusCode::kInvalidArgument);
}

// The column comes last: its count, three values, the checksum.
TEST(TrajectoryBlob, HostileSegmentsAreDataLoss) {
  const std::string good = *EncodeResponse(SegmentedResponse());
  const size_t at = good.size() - sizeof(uint64_t) - 4 * sizeof(uint32_t);
  const auto with = [&](uint32_t count) {
    std::string blob = good;
    std::memcpy(blob.data() + at, &count, sizeof(count));
    return DecodeResponse(Resealed(blob)).status().code();
  };
  EXPECT_EQ(with(3), absl::StatusCode::kOk);
  EXPECT_EQ(with(0), absl::StatusCode::kDataLoss);
  EXPECT_EQ(with(4), absl::StatusCode::kDataLoss);
  EXPECT_EQ(with(kMaxSegments + 1), absl::StatusCode::kDataLoss);
  EXPECT_EQ(with(0xffffffff), absl::StatusCode::kDataLoss);
}

// The bytes of a response record without sampling_logprobs.
TEST(TrajectoryBlob, AResponseWithoutSamplingLogprobsIsOfVersionOne) {
  BlobWriter writer(BlobKind::kResponse, 64);
  writer.Put(uint8_t{1});
  for (const uint32_t count : {1, 1, 1, 1}) writer.Put(count);
  writer.Put(int32_t{5});
  writer.Put(-0.5f);
  writer.Put(uint8_t{1});
  writer.Put(int64_t{0});
  writer.Put(int64_t{3});
  writer.Put(int32_t{0});
  writer.Put(int32_t{1});
  writer.Put(uint8_t{0});
  const std::string blob = std::move(writer).Finish();
  EXPECT_EQ(blob[0], 1);
  Response response;
  response.response_ids = {5};
  response.behavior_logprobs = {-0.5f};
  response.loss_mask = {1};
  response.spans = {{{0, 3}, 0, 1}};
  response.finish = FinishReason::kStop;
  EXPECT_EQ(*EncodeResponse(response), blob);
  const auto got = DecodeResponse(blob);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->response_ids, response.response_ids);
  EXPECT_TRUE(got->sampling_logprobs.empty());
}

TEST(TrajectoryBlob, ResponsesOfEveryLengthComeBack) {
  for (size_t n = 0; n < 40; ++n) {
    Response sent;
    for (size_t i = 0; i < n; ++i) {
      sent.response_ids.push_back(static_cast<int32_t>(i));
      sent.behavior_logprobs.push_back(-static_cast<float>(i));
      sent.loss_mask.push_back(static_cast<uint8_t>(Mix64(i * 41 + n) & 1));
    }
    const auto got = DecodeResponse(*EncodeResponse(sent));
    ASSERT_TRUE(got.ok()) << n << ": " << got.status();
    EXPECT_EQ(got->response_ids, sent.response_ids) << n;
    EXPECT_EQ(got->behavior_logprobs, sent.behavior_logprobs) << n;
    EXPECT_EQ(got->loss_mask, sent.loss_mask) << n;
    EXPECT_FALSE(got->env_reward.has_value());
  }
}

TEST(TrajectoryBlob, NanLogProbsComeBack) {
  Response sent;
  sent.behavior_logprobs = {std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::infinity()};
  const auto got = DecodeResponse(*EncodeResponse(sent));
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(std::isnan(got->behavior_logprobs[0]));
  EXPECT_TRUE(std::isinf(got->behavior_logprobs[1]));
}

TEST(TrajectoryBlob, ResponseCostsEightAndAnEighthBytesAToken) {
  Response response;
  response.response_ids.assign(8000, 1);
  response.behavior_logprobs.assign(8000, -1.f);
  response.loss_mask.assign(8000, 1);
  response.spans = {{{0, 1}, 0, 8000}};
  const auto blob = EncodeResponse(response);
  ASSERT_TRUE(blob.ok());
  EXPECT_GE(blob->size(), 65'000u);       // 8000 * 8.125
  EXPECT_LE(blob->size(), 65'000u + 64);  // header, one span, checksum
}

TEST(TrajectoryBlob, PromptComesBack) {
  const Prompt sent = SamplePrompt();
  const auto got = DecodePrompt(*EncodePrompt(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->ordinal, sent.ordinal);
  EXPECT_EQ(got->first_attempt, sent.first_attempt);
  EXPECT_EQ(got->prompt_ids, sent.prompt_ids);
  EXPECT_EQ(got->attributes, sent.attributes);
}

TEST(TrajectoryBlob, ScoreComesBack) {
  const Score sent = SampleScore();
  const auto got = DecodeScore(*EncodeScore(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->reward, sent.reward);
  EXPECT_EQ(got->components, sent.components);
  EXPECT_EQ(got->outcome, sent.outcome);
}

TEST(TrajectoryBlob, EncodeRefusesAMaskThatIsNoBit) {
  Response response = SampleResponse();
  response.loss_mask[2] = 2;
  EXPECT_EQ(EncodeResponse(response).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TrajectoryBlob, EncodeRefusesMoreTokensThanTheLimit) {
  Prompt prompt = SamplePrompt();
  prompt.prompt_ids.resize(static_cast<size_t>(kMaxBlobTokens) + 1);
  EXPECT_EQ(EncodePrompt(prompt).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TrajectoryBlob, EverySingleByteChangeIsDataLoss) {
  for (const Kind& kind : AllKinds()) {
    for (size_t at = 0; at < kind.blob.size(); ++at) {
      for (int flip = 1; flip < 256; ++flip) {
        std::string blob = kind.blob;
        blob[at] = static_cast<char>(blob[at] ^ flip);
        ASSERT_EQ(kind.decode(blob), absl::StatusCode::kDataLoss)
            << kind.name << " byte " << at << " flip " << flip;
      }
    }
  }
}

TEST(TrajectoryBlob, EveryTruncationAndExtensionIsDataLoss) {
  for (const Kind& kind : AllKinds()) {
    for (size_t size = 0; size < kind.blob.size(); ++size) {
      ASSERT_EQ(kind.decode(kind.blob.substr(0, size)), absl::StatusCode::kDataLoss)
          << kind.name << " cut to " << size;
    }
    EXPECT_EQ(kind.decode(kind.blob + '\0'), absl::StatusCode::kDataLoss) << kind.name;
  }
}

TEST(TrajectoryBlob, AnotherKindIsDataLoss) {
  const std::vector<Kind> kinds = AllKinds();
  for (const Kind& written : kinds) {
    for (const Kind& read : kinds) {
      const bool same = written.blob[1] == read.blob[1];
      EXPECT_EQ(read.decode(written.blob),
                same ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss)
          << written.name << " read as " << read.name;
    }
  }
}

TEST(TrajectoryBlob, AnotherFormatVersionIsDataLoss) {
  for (const Kind& kind : AllKinds()) {
    std::string blob = kind.blob;
    for (const int version : {0, 1, 2, 3, 4, 255}) {
      if (version == kind.blob[0]) continue;
      blob[0] = static_cast<char>(version);
      EXPECT_EQ(kind.decode(Resealed(blob)), absl::StatusCode::kDataLoss)
          << kind.name << " " << version;
    }
  }
}

// Changed counts and flags with a valid checksum must not crash the decoder or make it allocate
// memory for absent data. Sanitizers limit allocations.
TEST(TrajectoryBlob, HostileRecordsWithAGoodChecksumNeverCrash) {
  for (const Kind& kind : AllKinds()) {
    for (size_t at = 0; at + 8 < kind.blob.size(); ++at) {
      for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        std::string blob = kind.blob;
        blob[at] = static_cast<char>(value);
        const absl::StatusCode code = kind.decode(Resealed(blob));
        EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kDataLoss);
      }
    }
    for (size_t size = 10; size < kind.blob.size(); ++size) {
      EXPECT_EQ(kind.decode(Resealed(kind.blob.substr(0, size))), absl::StatusCode::kDataLoss)
          << kind.name << " cut to " << size;
    }
  }
}

TEST(TrajectoryBlob, HostileCountsAreDataLoss) {
  BlobWriter ids(BlobKind::kPrompt, 32);
  ids.Put(int64_t{0});
  ids.Put(int32_t{0});
  ids.Put(uint32_t{0xffffffff});
  ids.Put(uint32_t{0});
  EXPECT_EQ(DecodePrompt(std::move(ids).Finish()).status().code(), absl::StatusCode::kDataLoss);
  BlobWriter spans(BlobKind::kResponse, 32);
  spans.Put(uint8_t{0});
  for (int i = 0; i < 3; ++i) spans.Put(uint32_t{0});
  spans.Put(static_cast<uint32_t>(kMaxBlobSpans));
  EXPECT_EQ(DecodeResponse(std::move(spans).Finish()).status().code(), absl::StatusCode::kDataLoss);
}

// The column comes last: its count, nine values, the checksum.
TEST(TrajectoryBlob, HostileSamplingLogprobsAreDataLoss) {
  const std::string good = *EncodeResponse(TruncatedResponse());
  const size_t at = good.size() - sizeof(uint64_t) - 9 * sizeof(float) - sizeof(uint32_t);
  const auto with = [&](uint32_t count, size_t bytes) {
    std::string blob = good.substr(0, at);
    blob.append(reinterpret_cast<const char*>(&count), sizeof(count));
    blob.append(bytes + sizeof(uint64_t), '\0');
    return DecodeResponse(Resealed(blob)).status().code();
  };
  EXPECT_EQ(with(9, 36), absl::StatusCode::kOk);
  EXPECT_EQ(with(3, 12), absl::StatusCode::kOk) << "lengths are the store's matter";
  EXPECT_EQ(with(0, 0), absl::StatusCode::kDataLoss) << "empty";
  EXPECT_EQ(with(9, 35), absl::StatusCode::kDataLoss) << "a byte short";
  EXPECT_EQ(with(9, 37), absl::StatusCode::kDataLoss) << "a byte more";
  EXPECT_EQ(with(8, 36), absl::StatusCode::kDataLoss) << "a value more";
  EXPECT_EQ(with(static_cast<uint32_t>(kMaxBlobTokens), 36), absl::StatusCode::kDataLoss);
  EXPECT_EQ(with(0xffffffff, 36), absl::StatusCode::kDataLoss);
}

TEST(TrajectoryBlob, KeysOutOfOrderAreDataLoss) {
  BlobWriter writer(BlobKind::kScore, 64);
  writer.Put(uint8_t{0});
  writer.Put(1.0);
  writer.Put(uint32_t{2});
  for (const char* name : {"b", "a"}) {
    writer.Put(uint32_t{1});
    writer.PutText(name);
    writer.Put(1.0);
  }
  EXPECT_EQ(DecodeScore(std::move(writer).Finish()).status().code(), absl::StatusCode::kDataLoss);
}

TEST(TrajectoryBlob, UnusedMaskBitsAreDataLoss) {
  BlobWriter writer(BlobKind::kResponse, 64);
  writer.Put(uint8_t{0});
  writer.Put(uint32_t{0});
  writer.Put(uint32_t{0});
  writer.Put(uint32_t{3});
  writer.Put(uint32_t{0});
  writer.Put(uint8_t{0x08});  // bit 3 of a mask with three entries
  writer.Put(uint8_t{0});     // no environment reward
  EXPECT_EQ(DecodeResponse(std::move(writer).Finish()).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(TrajectoryBlob, RandomBytesAreDataLoss) {
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    std::string bytes(Mix64(seed) % 200, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(RandomBits(seed, i) & 0xff);
    }
    // Half of them have a valid checksum, version and kind.
    if (bytes.size() >= 10 && seed % 2 == 0) bytes[0] = seed % 4 == 0 ? 1 : 2;
    for (const Kind& kind : AllKinds()) {
      if (bytes.size() >= 10 && seed % 2 == 0) {
        bytes[1] = kind.blob[1];
        bytes = Resealed(bytes);
      }
      const absl::StatusCode code = kind.decode(bytes);
      if (seed % 2 == 1) {
        ASSERT_EQ(code, absl::StatusCode::kDataLoss) << kind.name << " seed " << seed;
      }
    }
  }
}

TEST(TrajectoryBlob, ChecksumNamesTheContent) {
  Score score = SampleScore();
  const std::string a = *EncodeScore(score);
  score.reward += 1;
  const std::string b = *EncodeScore(score);
  EXPECT_EQ(*BlobChecksum(a), Hex64(Xxh3(a.data(), a.size() - 8)));
  EXPECT_NE(*BlobChecksum(a), *BlobChecksum(b));
  EXPECT_EQ(BlobChecksum("1234567").status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace freshet
