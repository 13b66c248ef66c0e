#include "rollout/engine/draft_lookup.h"

#include <bit>
#include <iterator>

#include "base/digest.h"

namespace freshet {
namespace {

constexpr int64_t kLongest = 4;  // number of tokens that are looked up
constexpr int64_t kShortest = 2;
constexpr int64_t kPlacesPerToken = 8;  // 3 are used
constexpr int64_t kMostPlaces = 1 << 15;

}  // namespace

DraftLookup::DraftLookup(const std::vector<int32_t>& prompt, int64_t num_samples,
                         int64_t max_new_tokens)
    : texts_(static_cast<size_t>(num_samples) + 1) {
  const int64_t tokens = std::ssize(prompt) + num_samples * max_new_tokens;
  places_.resize(
      std::bit_ceil(static_cast<size_t>(std::min(kPlacesPerToken * tokens, kMostPlaces))));
  for (const int32_t token : prompt) Add(num_samples, token);
  const auto tail = prompt.end() - std::min(kLongest, std::ssize(prompt));
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    texts_[static_cast<size_t>(sample)].assign(tail, prompt.end());
  }
}

size_t DraftLookup::Slot(const int32_t* tokens, int64_t count) const {
  const auto size = static_cast<size_t>(count);
  return Xxh3(tokens, size * sizeof(*tokens), size) & (places_.size() - 1);
}

void DraftLookup::Add(int64_t sample, int32_t token) {
  std::vector<int32_t>& text = texts_[static_cast<size_t>(sample)];
  const int64_t size = std::ssize(text);
  for (int64_t count = kShortest; count <= std::min(kLongest, size); ++count) {
    places_[Slot(text.data() + size - count, count)] = {static_cast<int32_t>(sample),
                                                        static_cast<int32_t>(size)};
  }
  text.push_back(token);
}

const DraftLookup::Place* DraftLookup::Find(const std::vector<int32_t>& tokens) const {
  const int64_t size = std::ssize(tokens);
  for (int64_t count = std::min(kLongest, size); count >= kShortest; --count) {
    const int32_t* last = tokens.data() + size - count;
    const Place& place = places_[Slot(last, count)];
    if (place.text < 0 || place.next < count) continue;
    const std::vector<int32_t>& text = texts_[static_cast<size_t>(place.text)];
    if (std::equal(last, last + count, text.data() + place.next - count)) return &place;
  }
  return nullptr;
}

std::vector<int32_t> DraftLookup::Propose(int64_t sample, int64_t most) const {
  if (most <= 0) return {};
  const std::vector<int32_t>& own = texts_[static_cast<size_t>(sample)];
  const int64_t known = std::min(kLongest, std::ssize(own));
  std::vector<int32_t> tokens(own.end() - known, own.end());
  while (std::ssize(tokens) < known + most) {
    const Place* place = Find(tokens);
    if (place == nullptr) break;
    const std::vector<int32_t>& text = texts_[static_cast<size_t>(place->text)];
    const int64_t count =
        std::min(known + most - std::ssize(tokens), std::ssize(text) - place->next);
    const auto first = text.begin() + place->next;
    tokens.insert(tokens.end(), first, first + count);
  }
  tokens.erase(tokens.begin(), tokens.begin() + known);
  return tokens;
}

}  // namespace freshet
