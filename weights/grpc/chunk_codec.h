#ifndef FRESHET_WEIGHTS_GRPC_CHUNK_CODEC_H_
#define FRESHET_WEIGHTS_GRPC_CHUNK_CODEC_H_

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weights/manifest.h"
#include "weights/weight_reception.h"

namespace freshet {

// Encoding of the weight stream messages PrepareRequest and PullReply, which have the same shape: a
// header as field 1 or a chunk as field 2. Avoids the copies of a message object: chunk bytes go
// directly from the arena to the transport and from the transport to the arena.

inline constexpr int64_t kMaxChunkBytes = 1 << 20;

// A message whose chunk is bytes [offset, offset + size) of `bytes`. Keeps `bytes` alive.
grpc::ByteBuffer EncodeChunk(const WeightBytes& bytes, int64_t offset, int64_t size);

// Appends the chunk in `message` to `reception`. INVALID_ARGUMENT: not a chunk, or larger than
// kMaxChunkBytes. Otherwise errors of WeightReception::Append.
absl::Status AppendChunk(grpc::ByteBuffer message, WeightReception& reception);

template <typename Message>
grpc::ByteBuffer EncodeMessage(const Message& message) {
  grpc::ByteBuffer buffer;
  bool own = false;
  const grpc::Status status = grpc::SerializationTraits<Message>::Serialize(message, &buffer, &own);
  return status.ok() ? buffer : grpc::ByteBuffer();
}

// INVALID_ARGUMENT: the bytes are not such a message.
template <typename Message>
absl::StatusOr<Message> DecodeMessage(grpc::ByteBuffer buffer) {
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&buffer, &message).ok()) {
    return absl::InvalidArgumentError("not a message of the weight plane");
  }
  return message;
}

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_CHUNK_CODEC_H_
