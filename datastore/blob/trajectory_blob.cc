#include "datastore/blob/trajectory_blob.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/blob_record.h"

namespace freshet {
namespace {

// Format version of a response with sampling_logprobs.
constexpr uint8_t kSamplingVersion = 2;
// Of a response or score with step_rewards.
constexpr uint8_t kStepsVersion = 3;
// Of a response with segments; it may lack sampling_logprobs and step_rewards.
constexpr uint8_t kSegmentsVersion = 4;
constexpr int64_t kSpanBytes = 2 * sizeof(int64_t) + 2 * sizeof(int32_t);

absl::Status CheckCount(size_t count, int64_t limit, const char* what) {
  if (count <= static_cast<uint64_t>(limit)) return absl::OkStatus();
  return InvalidArgument("record: ", count, " ", what, " are above ", limit);
}

void PutCount(BlobWriter& writer, size_t count) { writer.Put(static_cast<uint32_t>(count)); }

// Packs one bit per token, the first into the lowest bit; unused bits are 0.
std::vector<uint8_t> PackMask(const std::vector<uint8_t>& mask) {
  std::vector<uint8_t> bits((mask.size() + 7) / 8, 0);
  // Moves bit 0 of byte k to bit 56 + k; the products do not overlap.
  const auto pack = [](uint64_t eight) {
    return static_cast<uint8_t>((eight * 0x0102040810204080u) >> 56);
  };
  uint64_t eight = 0;
  size_t i = 0;
  for (; 8 * i + 8 <= mask.size(); ++i) {
    std::memcpy(&eight, mask.data() + 8 * i, 8);
    bits[i] = pack(eight);
  }
  eight = 0;
  if (i < bits.size()) {
    std::memcpy(&eight, mask.data() + 8 * i, mask.size() - 8 * i);
    bits[i] = pack(eight);
  }
  return bits;
}

absl::Status CheckMask(const std::vector<uint8_t>& mask) {
  uint8_t all = 0;
  for (const uint8_t bit : mask) all = static_cast<uint8_t>(all | bit);
  if (all <= 1) return absl::OkStatus();
  const auto bad = std::find_if(mask.begin(), mask.end(), [](uint8_t bit) { return bit > 1; });
  return InvalidArgument("record: loss_mask holds ", int{*bad}, ", not 0 or 1");
}

std::vector<uint8_t> GetMask(BlobReader& reader, int64_t count) {
  const std::vector<uint8_t> bits = reader.GetColumn<uint8_t>((count + 7) / 8);
  if (!reader.ok()) return {};
  if (count % 8 != 0 && (bits.back() >> (count % 8)) != 0) {
    reader.Fail("unused bits of the loss mask are set");
    return {};
  }
  std::vector<uint8_t> mask(8 * bits.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    // Bit k of the eight copies selects byte k, which becomes 0 or 0x80.
    uint64_t eight = (bits[i] * 0x0101010101010101u) & 0x8040201008040201u;
    eight = ((eight + 0x00406070787c7e7fu) >> 7) & 0x0101010101010101u;
    std::memcpy(mask.data() + 8 * i, &eight, sizeof(eight));
  }
  mask.resize(static_cast<size_t>(count));
  return mask;
}

std::vector<Span> GetSpans(BlobReader& reader, int64_t count) {
  std::vector<Span> spans;
  if (!reader.Expect(count, kSpanBytes)) return spans;
  spans.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    Span span;
    span.policy.lineage = reader.Get<int64_t>();
    span.policy.version = reader.Get<int64_t>();
    span.begin = reader.Get<int32_t>();
    span.end = reader.Get<int32_t>();
    spans.push_back(span);
  }
  return spans;
}

void PutSteps(BlobWriter& writer, const std::vector<StepReward>& steps) {
  PutCount(writer, steps.size());
  for (const StepReward& step : steps) {
    writer.Put(step.end);
    writer.Put(step.reward);
  }
}

// `some`: there is at least one.
std::vector<StepReward> GetSteps(BlobReader& reader, bool some) {
  std::vector<StepReward> steps;
  const int64_t count = reader.GetCount(kMaxBlobSpans);
  if (!reader.Expect(count, sizeof(int32_t) + sizeof(double))) return steps;
  if (some && count == 0) reader.Fail("the column of step rewards is empty");
  steps.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    StepReward& step = steps.emplace_back();
    step.end = reader.Get<int32_t>();
    step.reward = reader.Get<double>();
  }
  return steps;
}

std::string GetSizedText(BlobReader& reader) {
  const int64_t size = reader.GetCount(kMaxBlobTextBytes);
  return std::string(reader.GetText(size));
}

// Maps are encoded in key order without duplicates.
template <typename Value>
void InsertNext(BlobReader& reader, std::map<std::string, Value>& map, std::string key,
                Value value) {
  if (!reader.ok()) return;
  if (!map.empty() && !(map.rbegin()->first < key)) {
    reader.Fail("the keys of a map are not in order");
    return;
  }
  map.emplace_hint(map.end(), std::move(key), std::move(value));
}

}  // namespace

absl::StatusOr<std::string> EncodeResponse(const Response& response) {
  std::string blob;
  FRESHET_RETURN_IF_ERROR(AppendResponse(response, blob));
  return blob;
}

absl::Status AppendResponse(const Response& response, std::string& blob) {
  FRESHET_RETURN_IF_ERROR(CheckCount(response.response_ids.size(), kMaxBlobTokens, "tokens"));
  FRESHET_RETURN_IF_ERROR(
      CheckCount(response.behavior_logprobs.size(), kMaxBlobTokens, "log-probs"));
  FRESHET_RETURN_IF_ERROR(
      CheckCount(response.sampling_logprobs.size(), kMaxBlobTokens, "log-probs"));
  FRESHET_RETURN_IF_ERROR(CheckCount(response.loss_mask.size(), kMaxBlobTokens, "mask entries"));
  FRESHET_RETURN_IF_ERROR(CheckCount(response.spans.size(), kMaxBlobSpans, "spans"));
  FRESHET_RETURN_IF_ERROR(CheckCount(response.step_rewards.size(), kMaxBlobSpans, "step rewards"));
  FRESHET_RETURN_IF_ERROR(CheckCount(response.segments.size(), kMaxSegments, "segments"));
  FRESHET_RETURN_IF_ERROR(CheckMask(response.loss_mask));
  const std::vector<float>& sampling = response.sampling_logprobs;
  const bool has_segments = !response.segments.empty();
  const bool has_steps = has_segments || !response.step_rewards.empty();
  BlobWriter writer(BlobKind::kResponse,
                    36 + 9 * response.response_ids.size() + kSpanBytes * response.spans.size() +
                        sizeof(float) * sampling.size(),
                    std::move(blob),
                    has_segments        ? kSegmentsVersion
                    : has_steps         ? kStepsVersion
                    : !sampling.empty() ? kSamplingVersion
                                        : uint8_t{1});
  writer.Put(static_cast<uint8_t>(response.finish));
  PutCount(writer, response.response_ids.size());
  PutCount(writer, response.behavior_logprobs.size());
  PutCount(writer, response.loss_mask.size());
  PutCount(writer, response.spans.size());
  writer.PutColumn(response.response_ids);
  writer.PutColumn(response.behavior_logprobs);
  writer.PutColumn(PackMask(response.loss_mask));
  for (const Span& span : response.spans) {
    writer.Put(span.policy.lineage);
    writer.Put(span.policy.version);
    writer.Put(span.begin);
    writer.Put(span.end);
  }
  writer.Put(static_cast<uint8_t>(response.env_reward.has_value() ? 1 : 0));
  if (response.env_reward.has_value()) writer.Put(*response.env_reward);
  if (!sampling.empty() || has_steps) {
    PutCount(writer, sampling.size());
    writer.PutColumn(sampling);
  }
  if (has_steps) PutSteps(writer, response.step_rewards);
  if (has_segments) {
    PutCount(writer, response.segments.size());
    writer.PutColumn(response.segments);
  }
  blob = std::move(writer).Finish();
  return absl::OkStatus();
}

absl::StatusOr<Response> DecodeResponse(std::string_view blob) {
  FRESHET_ASSIGN_OR_RETURN(BlobReader reader,
                           BlobReader::Open(BlobKind::kResponse, blob, kSegmentsVersion));
  Response response;
  const auto finish = reader.Get<uint8_t>();
  if (finish > static_cast<uint8_t>(FinishReason::kNotAsked)) reader.Fail("unknown finish reason");
  response.finish = static_cast<FinishReason>(finish);
  const int64_t num_ids = reader.GetCount(kMaxBlobTokens);
  const int64_t num_logprobs = reader.GetCount(kMaxBlobTokens);
  const int64_t num_mask = reader.GetCount(kMaxBlobTokens);
  const int64_t num_spans = reader.GetCount(kMaxBlobSpans);
  response.response_ids = reader.GetColumn<int32_t>(num_ids);
  response.behavior_logprobs = reader.GetColumn<float>(num_logprobs);
  response.loss_mask = GetMask(reader, num_mask);
  response.spans = GetSpans(reader, num_spans);
  const auto has_env_reward = reader.Get<uint8_t>();
  if (has_env_reward > 1) reader.Fail("neither with nor without an environment's reward");
  if (has_env_reward == 1) response.env_reward = reader.Get<double>();
  if (reader.version() >= kSamplingVersion) {
    const int64_t num_sampling = reader.GetCount(kMaxBlobTokens);
    if (num_sampling == 0 && reader.version() == kSamplingVersion) {
      reader.Fail("the column of sampling log-probs is empty");
    }
    response.sampling_logprobs = reader.GetColumn<float>(num_sampling);
  }
  if (reader.version() >= kStepsVersion) {
    response.step_rewards = GetSteps(reader, /*some=*/reader.version() == kStepsVersion);
  }
  if (reader.version() == kSegmentsVersion) {
    const int64_t num_segments = reader.GetCount(kMaxSegments);
    if (num_segments == 0) reader.Fail("the column of segments is empty");
    response.segments = reader.GetColumn<int32_t>(num_segments);
  }
  FRESHET_RETURN_IF_ERROR(reader.Finish());
  return response;
}

absl::StatusOr<std::string> EncodePrompt(const Prompt& prompt) {
  FRESHET_RETURN_IF_ERROR(CheckCount(prompt.prompt_ids.size(), kMaxBlobTokens, "tokens"));
  FRESHET_RETURN_IF_ERROR(CheckCount(prompt.attributes.size(), kMaxBlobEntries, "attributes"));
  size_t text_bytes = 0;
  for (const auto& [key, value] : prompt.attributes) {
    FRESHET_RETURN_IF_ERROR(CheckCount(key.size(), kMaxBlobTextBytes, "bytes of a key"));
    FRESHET_RETURN_IF_ERROR(CheckCount(value.size(), kMaxBlobTextBytes, "bytes of an attribute"));
    text_bytes += 8 + key.size() + value.size();
  }
  BlobWriter writer(BlobKind::kPrompt, 20 + 4 * prompt.prompt_ids.size() + text_bytes);
  writer.Put(prompt.ordinal);
  writer.Put(prompt.first_attempt);
  PutCount(writer, prompt.prompt_ids.size());
  PutCount(writer, prompt.attributes.size());
  writer.PutColumn(prompt.prompt_ids);
  for (const auto& [key, value] : prompt.attributes) {
    PutCount(writer, key.size());
    writer.PutText(key);
    PutCount(writer, value.size());
    writer.PutText(value);
  }
  return std::move(writer).Finish();
}

absl::StatusOr<Prompt> DecodePrompt(std::string_view blob) {
  FRESHET_ASSIGN_OR_RETURN(BlobReader reader, BlobReader::Open(BlobKind::kPrompt, blob));
  Prompt prompt;
  prompt.ordinal = reader.Get<int64_t>();
  prompt.first_attempt = reader.Get<int32_t>();
  const int64_t num_ids = reader.GetCount(kMaxBlobTokens);
  const int64_t num_attributes = reader.GetCount(kMaxBlobEntries);
  prompt.prompt_ids = reader.GetColumn<int32_t>(num_ids);
  for (int64_t i = 0; i < num_attributes && reader.ok(); ++i) {
    std::string key = GetSizedText(reader);
    std::string value = GetSizedText(reader);
    InsertNext(reader, prompt.attributes, std::move(key), std::move(value));
  }
  FRESHET_RETURN_IF_ERROR(reader.Finish());
  return prompt;
}

absl::StatusOr<std::string> EncodeScore(const Score& score) {
  FRESHET_RETURN_IF_ERROR(CheckCount(score.components.size(), kMaxBlobEntries, "components"));
  for (const auto& [name, value] : score.components) {
    FRESHET_RETURN_IF_ERROR(CheckCount(name.size(), kMaxBlobTextBytes, "bytes of a name"));
  }
  FRESHET_RETURN_IF_ERROR(CheckCount(score.step_rewards.size(), kMaxBlobSpans, "step rewards"));
  const bool has_steps = !score.step_rewards.empty();
  BlobWriter writer(BlobKind::kScore, 16 + 32 * score.components.size(), {},
                    has_steps ? kStepsVersion : uint8_t{1});
  writer.Put(static_cast<uint8_t>(score.outcome));
  writer.Put(score.reward);
  PutCount(writer, score.components.size());
  for (const auto& [name, value] : score.components) {
    PutCount(writer, name.size());
    writer.PutText(name);
    writer.Put(value);
  }
  if (has_steps) PutSteps(writer, score.step_rewards);
  return std::move(writer).Finish();
}

absl::StatusOr<Score> DecodeScore(std::string_view blob) {
  FRESHET_ASSIGN_OR_RETURN(BlobReader reader,
                           BlobReader::Open(BlobKind::kScore, blob, kStepsVersion));
  if (reader.version() == kSamplingVersion) reader.Fail("version 2 is only for responses");
  Score score;
  const auto outcome = reader.Get<uint8_t>();
  if (outcome > static_cast<uint8_t>(ScoreOutcome::kInfraError)) reader.Fail("unknown outcome");
  score.outcome = static_cast<ScoreOutcome>(outcome);
  score.reward = reader.Get<double>();
  const int64_t num_components = reader.GetCount(kMaxBlobEntries);
  for (int64_t i = 0; i < num_components && reader.ok(); ++i) {
    std::string name = GetSizedText(reader);
    const auto value = reader.Get<double>();
    InsertNext(reader, score.components, std::move(name), value);
  }
  if (reader.version() == kStepsVersion) score.step_rewards = GetSteps(reader, /*some=*/true);
  FRESHET_RETURN_IF_ERROR(reader.Finish());
  return score;
}

absl::StatusOr<std::string> BlobChecksum(std::string_view blob) {
  uint64_t checksum = 0;
  if (blob.size() < sizeof(checksum)) {
    return DataLoss("record of ", blob.size(), " bytes has no checksum");
  }
  std::memcpy(&checksum, blob.data() + blob.size() - sizeof(checksum), sizeof(checksum));
  return Hex64(checksum);
}

}  // namespace freshet
