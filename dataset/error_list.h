#ifndef FRESHET_DATASET_ERROR_LIST_H_
#define FRESHET_DATASET_ERROR_LIST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/str_cat.h"

namespace freshet {

// Collects errors of one input: keeps the first five and counts the rest.
class ErrorList {
 public:
  // `error` is one line without a newline.
  void Add(const std::string& error) {
    if (++count_ > kMaxShown) return;
    if (!lines_.empty()) lines_ += '\n';
    lines_ += error;
  }

  // OK if there are no errors; otherwise INVALID_ARGUMENT with one line per error and "and N more".
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
