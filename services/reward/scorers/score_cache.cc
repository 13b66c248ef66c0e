#include "services/reward/scorers/score_cache.h"

#include <cstring>

#include "base/digest.h"

namespace freshet {
namespace {

// Serializes a key. Texts are length-prefixed, so that different inputs give different bytes.
class KeyBytes {
 public:
  void AddText(std::string_view text) {
    AddNumber(static_cast<int64_t>(text.size()));
    bytes_.append(text);
  }
  template <typename T>
  void AddNumber(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  ScoreKey Finish() const {
    return {Xxh3(bytes_.data(), bytes_.size(), 0), Xxh3(bytes_.data(), bytes_.size(), 1)};
  }

 private:
  std::string bytes_;
};

}  // namespace

ScoreKey MakeScoreKey(std::string_view rule, const ScoreInput& input) {
  KeyBytes bytes;
  bytes.AddText(rule);
  bytes.AddText(input.completion);
  bytes.AddNumber(input.completion_tokens);
  bytes.AddNumber(input.finished);
  bytes.AddNumber(input.env_reward.has_value());
  bytes.AddNumber(input.env_reward.value_or(0.0));
  for (const std::string& completion : input.group) bytes.AddText(completion);
  if (!input.group.empty()) bytes.AddNumber(input.index);
  for (const auto& [end, reward] : input.env_steps) {
    bytes.AddNumber(end);
    bytes.AddNumber(reward);
  }
  for (const auto& [name, value] : input.attributes) {
    bytes.AddText(name);
    bytes.AddText(value);
  }
  return bytes.Finish();
}

std::optional<Score> ScoreCache::Get(const ScoreKey& key) {
  MutexLock lock(mu_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    ++misses_;
    return std::nullopt;
  }
  ++hits_;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->score;
}

void ScoreCache::Put(const ScoreKey& key, const Score& score) {
  if (capacity_ == 0) return;
  MutexLock lock(mu_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    found->second->score = score;
    entries_.splice(entries_.begin(), entries_, found->second);
    return;
  }
  entries_.push_front({key, score});
  by_key_[key] = entries_.begin();
  if (entries_.size() <= capacity_) return;
  by_key_.erase(entries_.back().key);
  entries_.pop_back();
}

int64_t ScoreCache::hits() const {
  MutexLock lock(mu_);
  return hits_;
}

int64_t ScoreCache::misses() const {
  MutexLock lock(mu_);
  return misses_;
}

size_t ScoreCache::size() const {
  MutexLock lock(mu_);
  return entries_.size();
}

absl::StatusOr<ComponentScore> CachingScorer::Score(const ScoreInput& input) const {
  const ScoreKey key = MakeScoreKey(rule_, input);
  if (const std::optional<freshet::Score> known = cache_->Get(key)) {
    return ComponentScore{known->reward, known->outcome, known->components};
  }
  absl::StatusOr<ComponentScore> score = scorer_->Score(input);
  if (score.ok()) cache_->Put(key, {score->value, score->parts, score->outcome});
  return score;
}

}  // namespace freshet
