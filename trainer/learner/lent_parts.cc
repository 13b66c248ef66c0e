#include "trainer/learner/lent_parts.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "trainer/learner/microbatches.h"

namespace freshet {

void LentParts::Copy() {
  if (no_copy_.empty()) {
    try {
      const at::NoGradGuard no_grad;
      StateParts copies;
      for (size_t i = 0; i < copies.size(); ++i) {
        copies[i] = parts_[i].to(at::kCPU, parts_[i].scalar_type(), /*non_blocking=*/false,
                                 /*copy=*/true);
      }
      parts_ = std::move(copies);
      loan_ = nullptr;
      return;
    } catch (const std::exception& error) {
      no_copy_ = Message(TorchError(error));
    }
  }
  FRESHET_LOG(Info) << "event=snapshot_lent reason=" << LogQuoted(no_copy_);
}

}  // namespace freshet
