#include "weights/grpc/manifest_codec.h"

#include <algorithm>

#include "base/proto_time.h"
#include "base/str_cat.h"

namespace freshet {

void PolicyToProto(const PolicyVersion& policy, trajectory::v1::PolicyVersion& message) {
  message.set_lineage(policy.lineage);
  message.set_version(policy.version);
}

PolicyVersion PolicyFromProto(const trajectory::v1::PolicyVersion& message) {
  return {message.lineage(), message.version()};
}

void ManifestToProto(const WeightManifest& manifest, weights::v1::Manifest& message) {
  PolicyToProto(manifest.policy, *message.mutable_policy());
  message.set_epoch(manifest.epoch);
  for (const WeightEntry& entry : manifest.entries) {
    weights::v1::WeightEntry& out = *message.add_entries();
    out.set_name(entry.name);
    out.set_dtype(entry.dtype);
    out.mutable_shape()->Add(entry.shape.begin(), entry.shape.end());
    out.set_offset_bytes(entry.offset_bytes);
  }
  message.set_total_bytes(manifest.total_bytes);
  message.set_bucket_bytes(manifest.bucket_bytes);
  message.mutable_bucket_hashes()->Add(manifest.bucket_hashes.begin(),
                                       manifest.bucket_hashes.end());
  message.set_content_hash(manifest.content_hash);
}

WeightManifest ManifestFromProto(const weights::v1::Manifest& message) {
  WeightManifest manifest;
  manifest.policy = PolicyFromProto(message.policy());
  manifest.epoch = message.epoch();
  manifest.entries.reserve(static_cast<size_t>(message.entries_size()));
  for (const weights::v1::WeightEntry& entry : message.entries()) {
    manifest.entries.push_back({entry.name(),
                                entry.dtype(),
                                {entry.shape().begin(), entry.shape().end()},
                                entry.offset_bytes()});
  }
  manifest.total_bytes = message.total_bytes();
  manifest.bucket_bytes = message.bucket_bytes();
  manifest.bucket_hashes = {message.bucket_hashes().begin(), message.bucket_hashes().end()};
  manifest.content_hash = message.content_hash();
  return manifest;
}

void ReceiptToProto(const CommitReceipt& receipt, weights::v1::Receipt& message) {
  PolicyToProto(receipt.policy, *message.mutable_policy());
  message.set_epoch(receipt.epoch);
  message.set_step(receipt.step);
  message.set_content_hash(receipt.content_hash);
  message.set_digest(receipt.digest);
}

CommitReceipt ReceiptFromProto(const weights::v1::Receipt& message) {
  return {PolicyFromProto(message.policy()), message.epoch(), message.step(),
          message.content_hash(), message.digest()};
}

void OfferToProto(const DeviceOffer& offer, weights::v1::DeviceCopy& message) {
  message.set_gpu_uuid(offer.uuid);
  message.set_handle(offer.handle);
  message.set_size(static_cast<int64_t>(offer.size));
  message.set_digest(offer.digest);
}

DeviceOffer OfferFromProto(const weights::v1::DeviceCopy& message) {
  return {message.gpu_uuid(), message.handle(), static_cast<uint64_t>(message.size()),
          message.digest()};
}

void ResultToProto(const std::string& worker, const absl::Status& status,
                   weights::v1::MemberResult& message) {
  message.set_worker(worker);
  message.set_prepared(status.ok());
  if (status.ok()) return;
  message.set_error(Message(status).substr(0, 1000));
  message.set_code(static_cast<int32_t>(status.code()));
}

absl::Status ResultFromProto(const weights::v1::MemberResult& message) {
  if (message.prepared()) return absl::OkStatus();
  const bool known = message.code() > 0 && message.code() <= 16;
  return StatusOf(
      known ? static_cast<absl::StatusCode>(message.code()) : absl::StatusCode::kUnknown,
      message.error());
}

absl::Duration SilenceFromProto(const google::protobuf::Duration* message, absl::Duration at_most) {
  constexpr absl::Duration kDefault = absl::Seconds(30);
  constexpr absl::Duration kLeast = absl::Milliseconds(10);
  if (message == nullptr) return std::min(kDefault, at_most);
  return std::clamp(FromDuration(*message), kLeast, std::max(at_most, kLeast));
}

}  // namespace freshet
