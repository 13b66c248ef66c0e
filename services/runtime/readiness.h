#ifndef FRESHET_SERVICES_RUNTIME_READINESS_H_
#define FRESHET_SERVICES_RUNTIME_READINESS_H_

#include <functional>
#include <map>
#include <string>

#include "base/mutex.h"

namespace freshet::runtime {

// Whether a process should get work: true if every named condition ("weights", "datastore") holds.
// Unrelated to liveness. Thread-safe.
class Readiness {
 public:
  // Sets one condition; `reason` says what is missing if it does not hold.
  void Set(const std::string& condition, bool holds, const std::string& reason = "")
      ABSL_LOCKS_EXCLUDED(mu_);
  bool ready() const ABSL_LOCKS_EXCLUDED(mu_);
  // "ready", or one line per unmet condition: "weights: no version yet".
  std::string Describe() const ABSL_LOCKS_EXCLUDED(mu_);
  // Called with ready() whenever it changes, one call at a time. Replaces the former listener. It
  // must not call Set.
  void OnChange(std::function<void(bool)> listener) ABSL_LOCKS_EXCLUDED(mu_, notify_mu_);

 private:
  void Notify() ABSL_LOCKS_EXCLUDED(mu_, notify_mu_);

  Mutex notify_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable Mutex mu_;
  std::map<std::string, std::string> missing_ ABSL_GUARDED_BY(mu_);
  std::function<void(bool)> listener_ ABSL_GUARDED_BY(notify_mu_);
  bool last_ ABSL_GUARDED_BY(notify_mu_) = true;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_READINESS_H_
