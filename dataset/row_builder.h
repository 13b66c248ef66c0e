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
  std::string prompt;                         // template over the fields (text_template.h)
  std::string answer;                         // field that becomes attribute "answer"; "": none
  std::map<std::string, std::string> fields;  // name used here -> name in the row
  std::vector<std::string> required;          // fields that others need, such as scorers
};

// Makes rows of named fields.
//
// A field that the options ask for, but that a row lacks, may go by another usual name, unless
// `fields` gives its name: question, problem, input, prompt stand for each other, and so do answer,
// solution, target, ground_truth, if the row has exactly one of them. Its value is then found under
// both names.
// Thread-compatible: const methods may run concurrently.
class RowBuilder {
 public:
  // INVALID_ARGUMENT for a bad template.
  static absl::StatusOr<RowBuilder> Create(const RowOptions& options);

  // INVALID_ARGUMENT: a field is missing (the message names it and the fields there are, or the
  // aliases between which it cannot choose), or the prompt comes out empty.
  absl::StatusOr<DatasetRow> Build(const std::map<std::string, std::string>& fields) const;

 private:
  RowBuilder(TextTemplate prompt, const RowOptions& options);
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::map<std::string, std::string>& fields) const;

  TextTemplate prompt_;
  std::string answer_;
  std::map<std::string, std::string> names_;
  std::vector<std::string> wanted_;  // fields that every row must have
};

}  // namespace freshet

#endif  // FRESHET_DATASET_ROW_BUILDER_H_
