#ifndef FRESHET_WEIGHTS_GRPC_DELTA_CHUNK_H_
#define FRESHET_WEIGHTS_GRPC_DELTA_CHUNK_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "weights/delta_codec.h"
#include "weights/weight_reception.h"

namespace freshet {

// A PrepareRequest whose delta gives bytes [offset, offset + size) of a version; `data` is
// DeltaCodec's encoding.
grpc::ByteBuffer EncodeDeltaChunk(int64_t offset, int64_t size, std::string data);

// Whether `message` may be a PrepareRequest with a delta.
bool IsDeltaChunk(grpc::ByteBuffer message);

// Appends the bytes that the delta in `message` gives to `reception`. `base` has as many bytes as
// the version.
//   INVALID_ARGUMENT: not a delta, or it exceeds a limit or the version.
//   Otherwise errors of DeltaCodec::Decode and WeightReception::Append.
absl::Status AppendDeltaChunk(grpc::ByteBuffer message, const WeightArena& base, DeltaCodec& codec,
                              WeightReception& reception);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_DELTA_CHUNK_H_
