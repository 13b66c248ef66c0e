#ifndef FRESHET_DATASTORE_REDIS_REDIS_LEDGER_H_
#define FRESHET_DATASTORE_REDIS_REDIS_LEDGER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/redis/redis_script_runner.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// The ledger of one job: a stream whose oldest rows are packed into segments. Errors: DATA_LOSS if
// rows are missing or malformed, others as in RedisScriptRunner. `runner` must outlive the
// object. Thread-safe.
class RedisLedger {
 public:
  // `segment_rows`: approximate number of rows per segment.
  RedisLedger(RedisScriptRunner& runner, int64_t segment_rows)
      : runner_(runner), config_(runner.config()), segment_rows_(segment_rows) {}

  // As in TrajectoryStore.
  absl::StatusOr<std::vector<LedgerRow>> Read(int64_t after_seq, int64_t max_rows);
  absl::Status Trim(int64_t upto_seq);
  // Packs rows after `after` into segments while there are enough rows for one, at most 16 segments
  // per call. RESOURCE_EXHAUSTED: the rows are too large for a segment, or Redis is out of memory.
  absl::Status Pack(int64_t after, int64_t newest);

 private:
  struct Page {
    int64_t after = 0;    // skip rows up to this one: already read or trimmed
    bool packed = false;  // from a segment
    std::vector<RedisReply> entries;
  };
  // Reads the segment with row after_seq + 1, or up to `max_entries` entries starting with the one
  // that has that row. Past the newest row, returns the newest entry.
  absl::StatusOr<Page> ReadPage(int64_t after_seq, int64_t max_entries);

  RedisScriptRunner& runner_;
  const RedisStoreConfig& config_;
  const int64_t segment_rows_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_LEDGER_H_
