#ifndef FRESHET_CLI_FORMAT_TEXT_TABLE_H_
#define FRESHET_CLI_FORMAT_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace freshet {

// Rows of cells under headers, as people read them: columns are left-aligned and two blanks apart,
// no line ends with a blank. An empty cell is shown as "-". Widths are in terminal columns.
// Confined to one thread.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers);
  // Cells beyond the headers are ignored, missing ones are empty; line breaks become blanks.
  void AddRow(std::vector<std::string> cells);
  // Headers and rows, each line ended by a newline.
  std::string Format() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first one holds the headers
};

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_TEXT_TABLE_H_
