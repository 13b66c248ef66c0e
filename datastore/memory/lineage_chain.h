#ifndef FRESHET_DATASTORE_MEMORY_LINEAGE_CHAIN_H_
#define FRESHET_DATASTORE_MEMORY_LINEAGE_CHAIN_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace freshet {

// Lineages of one store: the initial one, plus one for every redo that produced different weights.
// Versions are those of the current history. Confined to one thread at a time.
class LineageChain {
 public:
  explicit LineageChain(int64_t root) : root_(root) {}

  int64_t root() const { return root_; }
  int64_t current() const { return root_ + static_cast<int64_t>(ends_.size()); }

  // The redone `step` produced different weights: starts a new lineage at this step.
  void Diverge(int64_t step) {
    for (int64_t& end : ends_) end = std::min(end, step - 1);
    ends_.push_back(step - 1);
  }
  // The newest version of `lineage` (root()..current()) from which the current history descends.
  int64_t Last(int64_t lineage) const {
    return lineage == current() ? std::numeric_limits<int64_t>::max()
                                : ends_[static_cast<size_t>(lineage - root_)];
  }
  // The lineage of a version.
  int64_t Of(int64_t version) const {
    return root_ + (std::lower_bound(ends_.begin(), ends_.end(), version) - ends_.begin());
  }

 private:
  const int64_t root_;
  std::vector<int64_t> ends_;  // last version of each earlier lineage; non-decreasing
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_LINEAGE_CHAIN_H_
