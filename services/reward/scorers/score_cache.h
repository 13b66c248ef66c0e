#ifndef FRESHET_SERVICES_REWARD_SCORERS_SCORE_CACHE_H_
#define FRESHET_SERVICES_REWARD_SCORERS_SCORE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "datastore/trajectory.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// 128-bit hash of everything that a score depends on.
struct ScoreKey {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const ScoreKey&) const = default;
};

// Key of a sample's score under `rule`, a text that identifies the scorers and their options.
// Covers the whole input except its timeout and its calls.
ScoreKey MakeScoreKey(std::string_view rule, const ScoreInput& input);

// LRU cache of the last `capacity` scores. Failures are not cached. Thread-safe.
class ScoreCache {
 public:
  // `capacity` 0 disables the cache.
  explicit ScoreCache(size_t capacity) : capacity_(capacity) {}

  std::optional<Score> Get(const ScoreKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  void Put(const ScoreKey& key, const Score& score) ABSL_LOCKS_EXCLUDED(mu_);

  int64_t hits() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t misses() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Hash {
    size_t operator()(const ScoreKey& key) const { return static_cast<size_t>(key.low); }
  };
  struct Entry {
    ScoreKey key;
    Score score;
  };

  const size_t capacity_;
  mutable Mutex mu_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mu_);  // most recently used first
  std::unordered_map<ScoreKey, std::list<Entry>::iterator, Hash> by_key_ ABSL_GUARDED_BY(mu_);
  int64_t hits_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t misses_ ABSL_GUARDED_BY(mu_) = 0;
};

// Caches another scorer's results. Valid because scorers are functions of their input (scorer.h).
// Thread-safe.
class CachingScorer final : public Scorer {
 public:
  // `rule` identifies the scorer and its options; the cache may be shared by scorers of other
  // rules.
  CachingScorer(std::string rule, std::unique_ptr<Scorer> scorer, std::shared_ptr<ScoreCache> cache)
      : rule_(std::move(rule)), scorer_(std::move(scorer)), cache_(std::move(cache)) {}

  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  const std::string rule_;
  const std::unique_ptr<Scorer> scorer_;
  const std::shared_ptr<ScoreCache> cache_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_SCORE_CACHE_H_
