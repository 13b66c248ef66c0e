#include "weights/inprocess_transport.h"

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

int64_t InProcessTransport::Prepare(const WeightManifest& manifest, WeightBytes bytes) {
  int64_t holders = 0;
  for (const auto& subscriber : subscribers_) {
    const absl::Status status = subscriber->Prepare(manifest, bytes);
    if (status.ok()) {
      ++holders;
    } else {
      FRESHET_LOG(Warning) << "event=weights_refused version=" << manifest.policy.version
                           << " reason=" << LogQuoted(Message(status));
    }
  }
  return holders;
}

void InProcessTransport::Activate(const CommitReceipt& receipt) {
  for (const auto& subscriber : subscribers_) {
    const absl::Status status = subscriber->Activate(receipt);
    if (!status.ok()) {
      FRESHET_LOG(Warning) << "event=activation_refused version=" << receipt.policy.version
                           << " reason=" << LogQuoted(Message(status));
    }
  }
}

}  // namespace freshet
