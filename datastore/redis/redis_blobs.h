#ifndef FRESHET_DATASTORE_REDIS_REDIS_BLOBS_H_
#define FRESHET_DATASTORE_REDIS_REDIS_BLOBS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/redis/redis_script_runner.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/trajectory_store.h"

namespace freshet {

std::string PromptBlobName(int64_t ordinal, std::string_view checksum);

// Bytes to fetch. The Add calls return objects that RedisBlobReader::Fetch fills. Confined to one
// thread.
class FetchPlan {
 public:
  explicit FetchPlan(std::string job) : job_(std::move(job)) {}

  // Equal prompts are fetched once.
  std::shared_ptr<const Prompt> AddPrompt(int64_t ordinal, int32_t attempt,
                                          const std::string& checksum);
  // `field`: 's' for a sample, 'p' for a partial one. `record` is a SampleRecord.
  absl::StatusOr<std::shared_ptr<const Response>> AddResponse(const SampleKey& key, char field,
                                                              std::string_view record);
  // `score` is "" before scoring.
  absl::StatusOr<SampleView> AddSample(const SampleKey& key, const std::string& score,
                                       const std::string& prompt_sum, std::string_view record);

 private:
  friend class RedisBlobReader;
  // Location of bytes, and the field and attempt that reference them.
  struct Place {
    std::string name;
    int64_t ordinal = 0;
    int32_t attempt = 0;
    std::string field;  // as in drop_corrupt.lua
    std::string checksum;
    int64_t offset = 0;  // within the blob
    int64_t size = 0;    // 0: the whole blob
    std::function<absl::Status(std::string_view blob)> decode = nullptr;
  };
  std::shared_ptr<const Response> AddResponse(const SampleKey& key, char field,
                                              SampleRecord sample);
  template <typename T>
  std::shared_ptr<const T> Add(Place place, absl::StatusOr<T> (*decode)(std::string_view));

  const std::string job_;
  std::vector<Place> places_;
  // Group, record and value of each score.
  std::vector<std::tuple<int64_t, std::string, std::shared_ptr<Score>>> scores_;
  std::map<std::string, std::shared_ptr<const Prompt>> prompts_;  // by blob name
};

// Reads prompts and responses of one job. `runner` must outlive the reader. Thread-safe.
class RedisBlobReader {
 public:
  explicit RedisBlobReader(RedisScriptRunner& runner) : runner_(runner) {}

  // Fills the objects of the plan, with one round trip per 4 MiB or so. Returns the ordinals of
  // groups with missing or corrupt bytes: it ended them as dropped(corrupt), in another round trip,
  // and their objects must not be used. DATA_LOSS: such a group is already trained, or a score is
  // malformed. Other errors as in RedisClient.
  absl::StatusOr<std::set<int64_t>> Fetch(const FetchPlan& plan) const;
  // Fetch that ends no group. DATA_LOSS: bytes are missing or corrupt.
  absl::Status Read(const FetchPlan& plan) const;

 private:
  using Place = FetchPlan::Place;
  using Corrupt = std::vector<std::pair<const Place*, std::string>>;  // unreadable places and why

  absl::StatusOr<Corrupt> FetchPlaces(std::span<const Place> places) const;
  absl::Status FetchSlice(std::span<const Place> places, Corrupt& corrupt) const;
  absl::Status DropCorrupt(const Corrupt& corrupt) const;

  RedisScriptRunner& runner_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_BLOBS_H_
