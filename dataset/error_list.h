#ifndef FRESHET_DATASET_ERROR_LIST_H_
#define FRESHET_DATASET_ERROR_LIST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/str_cat.h"

namespace freshet {

// Collects the errors of one input: the first five in words, the rest by number.
class ErrorList {
 public:
  // `error` is one line without the newline.
  void Add(const std::string& error) {
    if (++count_ > kMaxShown) return;
    if (!lines_.empty()) lines_ += '\n';
    lines_ += error;
  }

  // OK without errors; else INVALID_ARGUMENT with one line per error shown and "and N more".
  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    if (count_ <= kMaxShown) return InvalidArgument(lines_);
    return InvalidArgument(lines_, "\nand ", count_ - kMaxShown, " more");
  }

 private:
  static constexpr int64_t kMaxShown = 5;
  std::string lines_;
  int64_t count_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_DATASET_ERROR_LIST_H_
