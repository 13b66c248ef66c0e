#include "weights/grpc/delta_chunk.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <span>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "freshet/weights/v1/weight_service.pb.h"
#include "weights/grpc/chunk_codec.h"

namespace freshet {
namespace {

constexpr uint32_t kDeltaTag = weights::v1::PrepareRequest::kDeltaFieldNumber << 3 | 2;

}  // namespace

grpc::ByteBuffer EncodeDeltaChunk(int64_t offset, int64_t size, std::string data) {
  weights::v1::PrepareRequest request;
  weights::v1::DeltaChunk& delta = *request.mutable_delta();
  delta.set_offset(offset);
  delta.set_size(size);
  delta.set_data(std::move(data));
  return EncodeMessage(request);
}

bool IsDeltaChunk(grpc::ByteBuffer message) {
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream in(&reader);
  return in.ReadTag() == kDeltaTag;
}

absl::Status AppendDeltaChunk(grpc::ByteBuffer message, const WeightArena& base, DeltaCodec& codec,
                              WeightReception& reception) {
  FRESHET_ASSIGN_OR_RETURN(const auto request, DecodeMessage<weights::v1::PrepareRequest>(message));
  const weights::v1::DeltaChunk& delta = request.delta();
  const int64_t size = delta.size();
  if (!request.has_delta()) return InvalidArgument("the message is not a difference of weights");
  if (size <= 0 || size > kMaxChunkBytes) {
    return InvalidArgument("difference of ", size, " bytes: must be 1 to ", kMaxChunkBytes);
  }
  if (static_cast<int64_t>(delta.data().size()) > size) {
    return InvalidArgument("difference encoded in ", delta.data().size(), " bytes, more than its ",
                           size);
  }
  const auto total = static_cast<int64_t>(base.size());
  if (delta.offset() < 0 || delta.offset() > total - size) {
    return InvalidArgument("difference of ", size, " bytes at offset ", delta.offset(),
                           " of a version of ", total, " bytes");
  }
  FRESHET_ASSIGN_OR_RETURN(const std::string_view piece,
                           codec.Decode(delta.data(), std::span(base.data() + delta.offset(),
                                                                static_cast<size_t>(size))));
  return reception.Append(delta.offset(), piece);
}

}  // namespace freshet
