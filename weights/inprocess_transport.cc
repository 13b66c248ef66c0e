#include "weights/inprocess_transport.h"

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

int64_t InProcessTransport::Publish(const CommittedWeights& version) {
  int64_t holders = 0;
  for (const auto& subscriber : subscribers_) {
    absl::Status status = subscriber->Prepare(version.snapshot.manifest, version.snapshot.bytes);
    if (status.ok()) {
      ++holders;
      status = subscriber->Activate(version.receipt);
    }
    if (status.ok()) continue;
    FRESHET_LOG(Warning) << "event=weights_refused version=" << version.receipt.policy.version
                         << " reason=" << LogQuoted(Message(status));
  }
  return holders;
}

}  // namespace freshet
