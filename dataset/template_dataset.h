#ifndef FRESHET_DATASET_TEMPLATE_DATASET_H_
#define FRESHET_DATASET_TEMPLATE_DATASET_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataset/dataset.h"
#include "dataset/row_builder.h"

namespace freshet {

struct TemplateDatasetOptions {
  RowOptions row;
  std::vector<std::map<std::string, std::string>> rows;
};

// Rows given in the job file. Thread-safe.
class TemplateDataset final : public Dataset {
 public:
  // INVALID_ARGUMENT: no rows, a bad template, or rows that lack a field: "dataset.rows[I]: ...",
  // at most 5 lines, then "and N more".
  static absl::StatusOr<std::unique_ptr<TemplateDataset>> Create(
      const TemplateDatasetOptions& options);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override;
  std::string Where(int64_t index) const override;

 private:
  explicit TemplateDataset(std::vector<DatasetRow> rows) : rows_(std::move(rows)) {}

  const std::vector<DatasetRow> rows_;
};

}  // namespace freshet

#endif  // FRESHET_DATASET_TEMPLATE_DATASET_H_
