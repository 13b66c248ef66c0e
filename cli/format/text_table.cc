#include "cli/format/text_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runlog/display_format.h"

namespace freshet {

TextTable::TextTable(std::vector<std::string> headers) { rows_.push_back(std::move(headers)); }

void TextTable::AddRow(std::vector<std::string> cells) {
  cells.resize(rows_.front().size());
  for (std::string& cell : cells) {
    std::replace_if(
        cell.begin(), cell.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
    if (cell.empty()) cell += '-';
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::Format() const {
  std::vector<int> widths(rows_.front().size(), 0);
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) {
        line.append(static_cast<size_t>(widths[i] - Columns(row[i]) + 2), ' ');
      }
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

}  // namespace freshet
