#ifndef FRESHET_DATASET_ROW_BUILDER_H_
#define FRESHET_DATASET_ROW_BUILDER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/text_template.h"
#include "dataset/dataset.h"

namespace freshet {

struct RowOptions {
  std::string prompt;                         // template over fields (text_template.h)
  std::string answer;                         // field copied to attribute "answer"; "": none
  std::map<std::string, std::string> fields;  // name used here -> name in the row
  std::vector<std::string> required;          // more required fields, such as those of scorers
};

// Builds rows from named fields.
//
// A requested field that a row lacks, and that `fields` does not map, may have an alias: question,
// problem, input and prompt are aliases, and so are answer, solution, target and ground_truth. It
// applies if the row has exactly one of them; the value is then available under both names.
// Thread-compatible: const methods may run concurrently.
class RowBuilder {
 public:
  // INVALID_ARGUMENT: bad template.
  static absl::StatusOr<RowBuilder> Create(const RowOptions& options);

  // INVALID_ARGUMENT: a field is missing (the message names it and the available fields, or the
  // ambiguous aliases), or the resulting prompt is empty.
  absl::StatusOr<DatasetRow> Build(const std::map<std::string, std::string>& fields) const;

 private:
  RowBuilder(TextTemplate prompt, const RowOptions& options);
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::map<std::string, std::string>& fields) const;

  TextTemplate prompt_;
  std::string answer_;
  std::map<std::string, std::string> names_;
  std::vector<std::string> wanted_;  // required fields of every row
};

}  // namespace freshet

#endif  // FRESHET_DATASET_ROW_BUILDER_H_
