#ifndef FRESHET_DATASTORE_MEMORY_LINEAGE_CHAIN_H_
#define FRESHET_DATASTORE_MEMORY_LINEAGE_CHAIN_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace freshet {

// The lineages of one store: the one that it began with, and one more for every redo that gave
// other weights than those committed before. Versions are those of the present history.
// Confined to one thread at a time.
class LineageChain {
 public:
  explicit LineageChain(int64_t root) : root_(root) {}

  int64_t root() const { return root_; }
  int64_t current() const { return root_ + static_cast<int64_t>(ends_.size()); }

  // The redone `step` gave other weights: what follows from it is of a new lineage.
  void Diverge(int64_t step) {
    for (int64_t& end : ends_) end = std::min(end, step - 1);
    ends_.push_back(step - 1);
  }
  // The newest version of `lineage`, one of root()..current(), that the present history comes from.
  int64_t Last(int64_t lineage) const {
    return lineage == current() ? std::numeric_limits<int64_t>::max()
                                : ends_[static_cast<size_t>(lineage - root_)];
  }
  // The lineage that a version is of.
  int64_t Of(int64_t version) const {
    return root_ + (std::lower_bound(ends_.begin(), ends_.end(), version) - ends_.begin());
  }

 private:
  const int64_t root_;
  std::vector<int64_t> ends_;  // of the lineages before the current one; never decreasing
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_LINEAGE_CHAIN_H_
