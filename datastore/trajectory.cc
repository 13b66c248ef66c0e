#include "datastore/trajectory.h"

#include <cstring>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {

std::string SampleUid(const std::string& job, const SampleKey& key) {
  return StrCat(job, "/", key.ordinal, "/", key.attempt, "/", key.index);
}

std::string PromptKey(const Prompt& prompt) {
  std::string text = StrCat(prompt.prompt_ids.size());
  for (const int32_t id : prompt.prompt_ids) text += StrCat(" ", id);
  for (const auto& [name, value] : prompt.attributes) {
    text += StrCat(" ", name.size(), ":", name, value.size(), ":", value);
  }
  return Hex64(Xxh3(text.data(), text.size()));
}

int64_t CountLossTokens(const std::vector<uint8_t>& loss_mask, int32_t begin, int32_t end) {
  // Eight bytes at a time: responses are long and several calls read each one.
  const uint8_t* at = loss_mask.data() + begin;
  const uint8_t* const behind = loss_mask.data() + end;
  int64_t count = 0;
  for (; behind - at >= 8; at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, at, sizeof(eight));
    count += static_cast<int64_t>((eight * 0x0101010101010101u) >> 56);
  }
  for (; at < behind; ++at) count += *at;
  return count;
}

const std::vector<int32_t>& CompletionIds(const Response& response) {
  static const std::vector<int32_t> none;
  return response.finish == FinishReason::kNotAsked ? none : response.response_ids;
}

std::vector<TokenRange> SegmentsOf(const Response& response) {
  const std::vector<int32_t>& begins = response.segments;
  const auto tokens = static_cast<int32_t>(response.response_ids.size());
  if (begins.empty()) return {{0, tokens}};
  std::vector<TokenRange> segments;
  segments.reserve(begins.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    segments.push_back({begins[i], i + 1 < begins.size() ? begins[i + 1] : tokens});
  }
  return segments;
}

}  // namespace freshet
