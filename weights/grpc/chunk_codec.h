#ifndef FRESHET_WEIGHTS_GRPC_CHUNK_CODEC_H_
#define FRESHET_WEIGHTS_GRPC_CHUNK_CODEC_H_

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weights/manifest.h"
#include "weights/weight_reception.h"

namespace freshet {

// Messages of the streams that carry weights: PrepareRequest and PullReply, which agree in shape (a
// header as field 1 or a chunk as field 2). A chunk's bytes go from the arena into the transport,
// and from the transport into the arena, without the copies that a message object would make.

inline constexpr int64_t kMaxChunkBytes = 1 << 20;

// A message whose chunk is bytes [offset, offset + size) of `bytes`, which it keeps alive.
grpc::ByteBuffer EncodeChunk(const WeightBytes& bytes, int64_t offset, int64_t size);

// Appends the chunk of `message` to `reception`. False when `message` is not written as EncodeChunk
// does it: it must be parsed then.
// Returns INVALID_ARGUMENT: larger than kMaxChunkBytes; else as WeightReception::Append.
absl::StatusOr<bool> AppendEncodedChunk(const grpc::ByteBuffer& message,
                                        WeightReception& reception);

// The same for a parsed chunk.
absl::Status AppendChunk(int64_t offset, std::string_view data, WeightReception& reception);

template <typename Message>
grpc::ByteBuffer EncodeMessage(const Message& message) {
  grpc::ByteBuffer buffer;
  bool own = false;
  const grpc::Status status = grpc::SerializationTraits<Message>::Serialize(message, &buffer, &own);
  return status.ok() ? buffer : grpc::ByteBuffer();
}

// INVALID_ARGUMENT when the bytes are not such a message.
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
