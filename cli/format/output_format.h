#ifndef FRESHET_CLI_FORMAT_OUTPUT_FORMAT_H_
#define FRESHET_CLI_FORMAT_OUTPUT_FORMAT_H_

#include <string_view>

namespace freshet {

enum class OutputFormat { kTable, kWide, kJson, kYaml, kName };

// From "table", "wide", "json", "yaml", "name"; anything else is a table.
constexpr OutputFormat ParseOutputFormat(std::string_view name) {
  if (name == "wide") return OutputFormat::kWide;
  if (name == "json") return OutputFormat::kJson;
  if (name == "yaml") return OutputFormat::kYaml;
  if (name == "name") return OutputFormat::kName;
  return OutputFormat::kTable;
}

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_OUTPUT_FORMAT_H_
