#include "controller/dataset/jsonl_dataset.h"

#include <string_view>

#include "controller/dataset/fault_list.h"
#include "controller/dataset/json_fields.h"
#include "services/base/file.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

absl::StatusOr<DatasetRow> ParseRow(std::string_view line, uint64_t max_line_bytes,
                                    const RowBuilder& builder) {
  if (line.size() > max_line_bytes) {
    return InvalidArgument("line has ", line.size(), " bytes, more than ", max_line_bytes,
                           "; split or shorten the row");
  }
  FRESHET_ASSIGN_OR_RETURN(const auto fields, ParseJsonFields(line));
  return builder.Build(fields);
}

}  // namespace

absl::StatusOr<std::unique_ptr<JsonlDataset>> JsonlDataset::Load(
    const JsonlDatasetOptions& options) {
  FRESHET_ASSIGN_OR_RETURN(const RowBuilder builder, RowBuilder::Create(options.row));
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.path, options.max_file_bytes));
  FaultList faults;
  std::vector<NumberedRow> rows;
  std::string_view rest = text;
  if (rest.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    rest.remove_prefix(kByteOrderMark.size());
  }
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    absl::StatusOr<DatasetRow> row = ParseRow(line, options.max_line_bytes, builder);
    if (row.ok()) {
      rows.push_back({*std::move(row), number});
    } else {
      faults.Add(StrCat(options.path, ":", number, ": ", Message(row.status())));
    }
  }
  FRESHET_RETURN_IF_ERROR(faults.ToStatus());
  if (rows.empty()) {
    return InvalidArgument(options.path, ": no rows; write one JSON object a line");
  }
  return std::unique_ptr<JsonlDataset>(new JsonlDataset(options.path, std::move(rows)));
}

absl::StatusOr<DatasetRow> JsonlDataset::Get(int64_t index) const {
  FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size()));
  return rows_[static_cast<size_t>(index)].row;
}

std::string JsonlDataset::Where(int64_t index) const {
  if (!CheckRowIndex(index, size()).ok()) return path_;
  return StrCat(path_, ":", rows_[static_cast<size_t>(index)].line);
}

}  // namespace freshet
