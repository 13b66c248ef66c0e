#include "dataset/template_dataset.h"

#include <cstdint>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "dataset/error_list.h"
#include "dataset/row_builder.h"

namespace freshet {
namespace {

class TemplateDataset final : public Dataset {
 public:
  explicit TemplateDataset(std::vector<DatasetRow> rows) : rows_(std::move(rows)) {}

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override {
    FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size()));
    return rows_[static_cast<size_t>(index)];
  }
  std::string Where(int64_t index) const override { return StrCat("dataset.rows[", index, "]"); }

 private:
  const std::vector<DatasetRow> rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeTemplateDataset(
    const job::v1::Dataset& dataset, const std::vector<std::string>& required) {
  if (dataset.rows().empty()) {
    return InvalidArgument("dataset.rows is empty; give at least one row");
  }
  FRESHET_ASSIGN_OR_RETURN(const RowBuilder builder, RowBuilder::Create(dataset, required));
  ErrorList errors;
  std::vector<DatasetRow> rows;
  for (int i = 0; i < dataset.rows_size(); ++i) {
    const auto& values = dataset.rows(i).values();
    absl::StatusOr<DatasetRow> row = builder.Build({values.begin(), values.end()});
    if (row.ok()) {
      rows.push_back(*std::move(row));
    } else {
      errors.Add(StrCat("dataset.rows[", i, "]: ", Message(row.status())));
    }
  }
  FRESHET_RETURN_IF_ERROR(errors.ToStatus());
  return std::make_unique<TemplateDataset>(std::move(rows));
}

}  // namespace freshet
