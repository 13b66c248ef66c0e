#ifndef FRESHET_TRAINER_LEARNER_LENT_PARTS_H_
#define FRESHET_TRAINER_LEARNER_LENT_PARTS_H_

#include <array>
#include <memory>
#include <string>

#include "model/torch.h"
#include "trainer/learner/state_blocks.h"

namespace freshet {

// A rank's part of each column, or whole columns, in the order of kStateColumns.
using StateParts = std::array<at::Tensor, kStateColumns.size()>;

// Parts of a learner's state at one moment. They are the learner's own memory, which it does not
// change before the loan ends: when they are copied, or with this object. Not thread-safe.
class LentParts {
 public:
  // `no_copy` says why Copy copies nothing; "": it copies.
  LentParts(StateParts parts, std::shared_ptr<const void> loan, std::string no_copy)
      : parts_(std::move(parts)), loan_(std::move(loan)), no_copy_(std::move(no_copy)) {}

  // Copies the parts to host memory and ends the loan. If that fails, they stay lent, and a line in
  // the log says why.
  void Copy();

  const at::Tensor& Part(StateColumn column) const {
    return parts_.at(static_cast<size_t>(column));
  }

 private:
  StateParts parts_;
  std::shared_ptr<const void> loan_;
  std::string no_copy_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_LENT_PARTS_H_
