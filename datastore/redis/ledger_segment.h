#ifndef FRESHET_DATASTORE_REDIS_LEDGER_SEGMENT_H_
#define FRESHET_DATASTORE_REDIS_LEDGER_SEGMENT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// Maximum text size of one segment.
constexpr size_t kMaxSegmentBytes = size_t{64} << 20;

// Packs ledger entries for long-term storage: the text's size, a space, and the zlib-compressed
// text. Omits the location of each sample's bytes. A sample with one span takes about 6 bytes.
//
// Each entry is [id, [name, value, ...]], as returned by XRANGE.
//   DATA_LOSS: an item is not such an entry.
//   RESOURCE_EXHAUSTED: more than 32,768 entries, or more text than kMaxSegmentBytes.
absl::StatusOr<std::string> PackLedgerSegment(const std::vector<RedisReply>& entries);
// Inverse of PackLedgerSegment. DATA_LOSS: malformed bytes.
absl::StatusOr<std::vector<RedisReply>> UnpackLedgerSegment(std::string_view segment);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_LEDGER_SEGMENT_H_
