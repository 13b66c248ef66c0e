#ifndef FRESHET_DATASTORE_REDIS_LEDGER_SEGMENT_H_
#define FRESHET_DATASTORE_REDIS_LEDGER_SEGMENT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// Text of one segment.
constexpr size_t kMaxSegmentBytes = size_t{64} << 20;

// Packs ledger entries as the store keeps them for the rest of the job's life: the size of their
// text, a space, and the text compressed by zlib. The location of each sample's bytes is left out.
// A sample of one span takes about 6 bytes.
//
// Each entry is [id, [name, value, ...]], as XRANGE returns it.
//   DATA_LOSS: an item is not such an entry.
//   RESOURCE_EXHAUSTED: more than 32,768 entries, or more text than kMaxSegmentBytes.
absl::StatusOr<std::string> PackLedgerSegment(const std::vector<RedisReply>& entries);
// The inverse of PackLedgerSegment. DATA_LOSS for bytes that it did not write.
absl::StatusOr<std::vector<RedisReply>> UnpackLedgerSegment(std::string_view segment);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_LEDGER_SEGMENT_H_
