#include "trainer/learner/lent_parts.h"

#include <exception>

#include "base/log.h"

namespace freshet {

void LentParts::Copy() {
  if (no_copy_.empty()) {
    try {
      for (at::Tensor& part : parts_) {
        part = part.to(at::kCPU, part.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
      }
      loan_ = nullptr;
      return;
    } catch (const std::exception& error) {
      no_copy_ = error.what();
    }
  }
  FRESHET_LOG(Info) << "event=snapshot_lent reason=" << LogQuoted(no_copy_);
}

}  // namespace freshet
