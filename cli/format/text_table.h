#ifndef FRESHET_CLI_FORMAT_TEXT_TABLE_H_
#define FRESHET_CLI_FORMAT_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace freshet {

// A text table with headers: columns are left-aligned and two spaces apart, without trailing
// spaces. Empty cells are shown as "-". Widths are in terminal columns. Not thread-safe.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers);
  // Extra cells are ignored, missing ones are empty; line breaks become spaces.
  void AddRow(std::vector<std::string> cells);
  // Headers and rows, each line terminated by a newline.
  std::string Format() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first one is the header
};

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_TEXT_TABLE_H_
