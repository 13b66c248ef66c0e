#ifndef FRESHET_DATASTORE_REDIS_REDIS_BLOBS_H_
#define FRESHET_DATASTORE_REDIS_REDIS_BLOBS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_script_runner.h"
#include "datastore/redis/redis_trajectory_store_config.h"
#include "datastore/trajectory_store.h"

namespace freshet {

std::string PromptBlobName(int64_t ordinal, std::string_view checksum);

// Location of bytes, and the field and attempt that reference them.
struct BlobPlace {
  std::string name;
  int64_t ordinal = 0;
  int64_t attempt = 0;
  std::string field;  // as in drop_corrupt.lua
  std::string checksum;
  int64_t offset = 0;  // within the blob
  int64_t size = 0;    // 0: the whole blob
};

// A sample as described by the scripts, before its bytes are fetched.
struct SampleTicket {
  SampleKey key;
  std::string score;
  size_t prompt = 0;  // positions in the plan
  size_t response = 0;
  std::optional<size_t> ref;
};

// Places to fetch, each prompt once; referenced by position. Confined to one thread.
class FetchPlan {
 public:
  size_t AddPrompt(int64_t ordinal, int64_t attempt, const std::string& checksum);
  // `field`: 's' for a sample, 'p' for a partial one. `record` is a SampleRecord.
  absl::StatusOr<size_t> AddResponse(const SampleKey& key, char field, std::string_view record);
  // Adds a sample's places. `ref` is "TOKEN CHECKSUM" or "".
  absl::StatusOr<SampleTicket> AddSample(const SampleKey& key, std::string score,
                                         const std::string& prompt_sum, std::string_view record,
                                         std::string_view ref);
  const std::vector<BlobPlace>& places() const { return places_; }

 private:
  size_t Add(BlobPlace place);

  std::vector<BlobPlace> places_;
  std::map<std::string, size_t> prompts_;  // position by blob name
};

// Decoded bytes by position in the plan, null if the place has another type or is unreadable.
struct FetchedBlobs {
  std::vector<std::shared_ptr<const Prompt>> prompts;
  std::vector<std::shared_ptr<const Response>> responses;
  std::vector<std::shared_ptr<const std::vector<float>>> floats;
  std::set<int64_t> ended;  // ordinals of groups with unreadable bytes

  // Members whose bytes are missing are null.
  absl::StatusOr<SampleView> View(const std::string& job, const SampleTicket& ticket) const;
};

// Reads prompts, responses and reference log-probs of one job. `runner` and `config` must outlive
// the reader. Thread-safe.
class RedisBlobReader {
 public:
  RedisBlobReader(std::shared_ptr<RedisClient> client, RedisScriptRunner& runner,
                  const RedisStoreConfig& config)
      : client_(std::move(client)), runner_(runner), config_(config) {}

  // Fetches the places in slices of about 4 MiB, one round trip each. If some bytes are missing or
  // corrupt, another one ends their groups as dropped(corrupt). DATA_LOSS: one of these groups is
  // already trained. Other errors as in RedisClient.
  absl::StatusOr<FetchedBlobs> Fetch(const FetchPlan& plan) const;

 private:
  using Corrupt = std::vector<std::pair<BlobPlace, std::string>>;  // unreadable places and why

  absl::Status FetchSlice(const std::vector<BlobPlace>& places, size_t first, size_t behind,
                          FetchedBlobs& blobs, Corrupt& corrupt) const;
  absl::Status DropCorrupt(const Corrupt& corrupt) const;

  const std::shared_ptr<RedisClient> client_;
  RedisScriptRunner& runner_;
  const RedisStoreConfig& config_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_BLOBS_H_
