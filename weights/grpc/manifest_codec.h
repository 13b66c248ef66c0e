#ifndef FRESHET_WEIGHTS_GRPC_MANIFEST_CODEC_H_
#define FRESHET_WEIGHTS_GRPC_MANIFEST_CODEC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/policy_version.h"
#include "freshet/weights/v1/weight_service.pb.h"
#include "google/protobuf/duration.pb.h"
#include "weights/cuda/device_copies.h"
#include "weights/manifest.h"

namespace freshet {

// Conversion between weight plane structs and messages. Untrusted input is converted without
// validation; use CheckManifest.
void ManifestToProto(const WeightManifest& manifest, weights::v1::Manifest& message);
WeightManifest ManifestFromProto(const weights::v1::Manifest& message);

void ReceiptToProto(const CommitReceipt& receipt, weights::v1::Receipt& message);
CommitReceipt ReceiptFromProto(const weights::v1::Receipt& message);

void PolicyToProto(const PolicyVersion& policy, trajectory::v1::PolicyVersion& message);
PolicyVersion PolicyFromProto(const trajectory::v1::PolicyVersion& message);

void OfferToProto(const DeviceOffer& offer, weights::v1::DeviceCopy& message);
DeviceOffer OfferFromProto(const weights::v1::DeviceCopy& message);

// A member's result. Worker "": the receiver of the call.
void ResultToProto(const std::string& worker, const absl::Status& status,
                   weights::v1::MemberResult& message);
absl::Status ResultFromProto(const weights::v1::MemberResult& message);

// The silence_timeout of a PrepareHeader or a PrepareBroadcastRequest; null: absent. At least 10
// ms, at most `at_most`.
absl::Duration SilenceFromProto(const google::protobuf::Duration* message, absl::Duration at_most);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_MANIFEST_CODEC_H_
