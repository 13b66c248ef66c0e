#ifndef FRESHET_BASE_POLICY_VERSION_H_
#define FRESHET_BASE_POLICY_VERSION_H_

#include <compare>
#include <cstdint>
#include <string>

namespace freshet {

// `version` counts committed training steps since warm-up. `lineage` numbers the branches of
// training history; it grows at every fork and when redone steps produce different weights. Ordered
// by lineage first.
struct PolicyVersion {
  int64_t lineage = 0;
  int64_t version = 0;
  auto operator<=>(const PolicyVersion&) const = default;
};

// Returned by the datastore for a committed training step.
struct CommitReceipt {
  PolicyVersion policy;  // version that this step produced
  int64_t epoch = 0;
  int64_t step = 0;
  std::string content_hash;  // of the weights
  std::string digest;        // over all surviving trained uids, including this step
};

}  // namespace freshet

#endif  // FRESHET_BASE_POLICY_VERSION_H_
