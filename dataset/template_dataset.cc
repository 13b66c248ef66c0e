#include "dataset/template_dataset.h"

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "dataset/error_list.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<TemplateDataset>> TemplateDataset::Create(
    const TemplateDatasetOptions& options) {
  if (options.rows.empty()) return InvalidArgument("dataset.rows is empty; give at least one row");
  FRESHET_ASSIGN_OR_RETURN(const RowBuilder builder, RowBuilder::Create(options.row));
  ErrorList errors;
  std::vector<DatasetRow> rows;
  for (size_t i = 0; i < options.rows.size(); ++i) {
    absl::StatusOr<DatasetRow> row = builder.Build(options.rows[i]);
    if (row.ok()) {
      rows.push_back(*std::move(row));
    } else {
      errors.Add(StrCat("dataset.rows[", i, "]: ", Message(row.status())));
    }
  }
  FRESHET_RETURN_IF_ERROR(errors.ToStatus());
  return std::unique_ptr<TemplateDataset>(new TemplateDataset(std::move(rows)));
}

absl::StatusOr<DatasetRow> TemplateDataset::Get(int64_t index) const {
  FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size()));
  return rows_[static_cast<size_t>(index)];
}

std::string TemplateDataset::Where(int64_t index) const {
  return StrCat("dataset.rows[", index, "]");
}

}  // namespace freshet
