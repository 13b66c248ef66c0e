#include "weights/grpc/chunk_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <array>
#include <string>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr uint32_t kChunkTag = 2 << 3 | 2;   // chunk = 2, length-delimited
constexpr uint32_t kOffsetTag = 1 << 3 | 0;  // offset = 1, varint
constexpr uint32_t kDataTag = 2 << 3 | 2;    // data = 2, length-delimited

}  // namespace

grpc::ByteBuffer EncodeChunk(const WeightBytes& bytes, int64_t offset, int64_t size) {
  const auto begin = static_cast<uint64_t>(offset);
  const auto count = static_cast<uint32_t>(size);
  std::string prefix;
  {
    google::protobuf::io::StringOutputStream stream(&prefix);
    CodedOutputStream out(&stream);
    out.WriteTag(kChunkTag);
    out.WriteVarint32(2 +
                      static_cast<uint32_t>(CodedOutputStream::VarintSize64(begin) +
                                            CodedOutputStream::VarintSize32(count)) +
                      count);
    out.WriteTag(kOffsetTag);
    out.WriteVarint64(begin);
    out.WriteTag(kDataTag);
    out.WriteVarint32(count);
  }
  // gRPC requires a mutable pointer but does not write to it.
  void* data = const_cast<std::byte*>(bytes->data() + offset);
  const std::array<grpc::Slice, 2> slices = {
      grpc::Slice(prefix),
      grpc::Slice(
          data, static_cast<size_t>(size),
          [](void* owner) { delete static_cast<WeightBytes*>(owner); }, new WeightBytes(bytes))};
  return {slices.data(), slices.size()};
}

absl::Status AppendChunk(grpc::ByteBuffer message, WeightReception& reception) {
  const auto total = static_cast<int64_t>(message.Length());
  grpc::ProtoBufferReader reader(&message);
  CodedInputStream in(&reader);
  uint64_t offset = 0;
  uint32_t left = 0;
  // The chunk is the whole message, and its data come last.
  bool valid = in.ReadTag() == kChunkTag && in.ReadVarint32(&left) &&
               in.CurrentPosition() + int64_t{left} == total;
  uint32_t tag = in.ReadTag();
  if (tag == kOffsetTag) {
    valid = valid && in.ReadVarint64(&offset);
    tag = in.ReadTag();
  }
  valid = valid && tag == kDataTag && in.ReadVarint32(&left) &&
          in.CurrentPosition() + int64_t{left} == total;
  if (!valid) return InvalidArgument("the message is not a chunk of weights");
  if (left > kMaxChunkBytes) {
    return InvalidArgument("chunk of ", left, " bytes, at most ", kMaxChunkBytes);
  }
  const void* piece = nullptr;
  for (int size = 0; left > 0 && in.GetDirectBufferPointer(&piece, &size); in.Skip(size)) {
    FRESHET_RETURN_IF_ERROR(
        reception.Append(static_cast<int64_t>(offset),
                         {static_cast<const char*>(piece), static_cast<size_t>(size)}));
    offset += static_cast<uint64_t>(size);
    left -= static_cast<uint32_t>(size);
  }
  return absl::OkStatus();
}

}  // namespace freshet
