#ifndef FRESHET_BASE_ATTACHED_H_
#define FRESHET_BASE_ATTACHED_H_

#include <cstdint>

#include "base/mutex.h"

namespace freshet {

// An object that comes and goes while other threads use it, one at a time. `use` must be quick and
// must not call this. Thread-safe.
template <typename T>
class Attached {
 public:
  // `object` must live until Detach has returned.
  void Attach(T& object) ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    object_ = &object;
    ++number_;
  }
  // Waits for the use in progress. Without effect if `object` is not attached.
  void Detach(const T& object) ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    if (object_ == &object) object_ = nullptr;
  }
  // Calls use(object, number), where `number` names this object. False: there is none.
  template <typename Use>
  bool With(const Use& use) ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    if (object_ == nullptr) return false;
    use(*object_, number_);
    return true;
  }
  // Calls use(object) if the object of this number is still attached.
  template <typename Use>
  bool WithSame(int64_t number, const Use& use) ABSL_LOCKS_EXCLUDED(mu_) {
    const MutexLock lock(mu_);
    if (object_ == nullptr || number != number_) return false;
    use(*object_);
    return true;
  }

 private:
  Mutex mu_;
  T* object_ ABSL_GUARDED_BY(mu_) = nullptr;
  int64_t number_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_BASE_ATTACHED_H_
