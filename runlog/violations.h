#ifndef FRESHET_RUNLOG_VIOLATIONS_H_
#define FRESHET_RUNLOG_VIOLATIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/str_cat.h"

namespace freshet {

// Violated guarantees in the order found. All are counted; the first kMaxListed are kept as text.
class Violations {
 public:
  static constexpr size_t kMaxListed = 20;

  template <typename... Args>
  void Add(const Args&... args) {
    ++count_;
    if (listed_.size() < kMaxListed) listed_.push_back(StrCat(args...));
  }
  int64_t count() const { return count_; }
  const std::vector<std::string>& listed() const { return listed_; }

 private:
  int64_t count_ = 0;
  std::vector<std::string> listed_;
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_VIOLATIONS_H_
