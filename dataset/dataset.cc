#include "dataset/dataset.h"

#include <utility>

#include "base/row_order.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Rows [begin, begin + size) of another dataset.
class RangeDataset final : public Dataset {
 public:
  RangeDataset(std::shared_ptr<const Dataset> base, int64_t begin, int64_t size)
      : base_(std::move(base)), begin_(begin), size_(size) {}

  int64_t size() const override { return size_; }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override {
    FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size_));
    return base_->Get(begin_ + index);
  }
  std::string Where(int64_t index) const override { return base_->Where(begin_ + index); }

 private:
  const std::shared_ptr<const Dataset> base_;
  const int64_t begin_;
  const int64_t size_;
};

}  // namespace

int64_t Dataset::RowOf(uint64_t seed, int64_t ordinal, bool shuffle) const {
  return RowOfOrdinal(seed, size(), ordinal, shuffle);
}

absl::Status CheckRowIndex(int64_t index, int64_t size) {
  if (index >= 0 && index < size) return absl::OkStatus();
  return StatusOf(absl::StatusCode::kOutOfRange, "row index ", index, " is not within 0..",
                  size - 1);
}

absl::StatusOr<DatasetSplit> SplitHeldOut(std::shared_ptr<const Dataset> dataset,
                                          int64_t held_out_rows) {
  const int64_t size = dataset->size();
  if (held_out_rows < 1 || held_out_rows >= size) {
    return InvalidArgument("held-out rows: ", held_out_rows, " of a dataset of ", size,
                           " rows; hold out at least 1 and leave at least 1 for training");
  }
  const int64_t train = size - held_out_rows;
  return DatasetSplit{std::make_shared<RangeDataset>(dataset, 0, train),
                      std::make_shared<RangeDataset>(dataset, train, held_out_rows)};
}

}  // namespace freshet
