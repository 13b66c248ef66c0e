#include "services/runtime/readiness.h"

#include <utility>

#include "base/str_cat.h"

namespace freshet::runtime {

void Readiness::Set(const std::string& condition, bool holds, const std::string& reason) {
  {
    MutexLock lock(mu_);
    if (holds) {
      missing_.erase(condition);
    } else {
      missing_[condition] = reason;
    }
  }
  Notify();
}

bool Readiness::ready() const {
  MutexLock lock(mu_);
  return missing_.empty();
}

std::string Readiness::Describe() const {
  MutexLock lock(mu_);
  if (missing_.empty()) return "ready";
  std::string text;
  for (const auto& [condition, reason] : missing_) {
    if (!text.empty()) text += "\n";
    text += reason.empty() ? condition : StrCat(condition, ": ", reason);
  }
  return text;
}

void Readiness::OnChange(std::function<void(bool)> listener) {
  MutexLock lock(notify_mu_);
  listener_ = std::move(listener);
  last_ = ready();
}

// Read the state under the listener's lock, so that calls are in order.
void Readiness::Notify() {
  MutexLock lock(notify_mu_);
  const bool now = ready();
  if (now == last_) return;
  last_ = now;
  if (listener_) listener_(now);
}

}  // namespace freshet::runtime
