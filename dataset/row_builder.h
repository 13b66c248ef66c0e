#ifndef FRESHET_DATASET_ROW_BUILDER_H_
#define FRESHET_DATASET_ROW_BUILDER_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/text_template.h"
#include "dataset/dataset.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// Builds rows from named fields, by the keys prompt (a template over fields, text_template.h),
// answer (the field copied to attribute "answer"), fields (name used here -> name in the row) and
// chat. With chat, the prompt is a conversation: a JSON object with `messages` and perhaps `tools`.
//
// A requested field that a row lacks, and that `fields` does not map, may have an alias: question,
// problem, input and prompt are aliases, and so are answer, solution, target and ground_truth. It
// applies if the row has exactly one of them; the value is then available under both names.
// Thread-compatible: const methods may run concurrently.
class RowBuilder {
 public:
  // `required`: more required fields, such as those of scorers.
  // INVALID_ARGUMENT: bad template.
  static absl::StatusOr<RowBuilder> Create(const job::v1::Dataset& dataset,
                                           const std::vector<std::string>& required);

  // INVALID_ARGUMENT: a field is missing (the message names it and the available fields, or the
  // ambiguous aliases), the resulting prompt is empty, or the messages or tools are no JSON lists.
  absl::StatusOr<DatasetRow> Build(const std::map<std::string, std::string>& fields) const;

 private:
  RowBuilder(TextTemplate prompt, const job::v1::Dataset& dataset,
             const std::vector<std::string>& required);
  absl::StatusOr<std::string> MakeConversation(const std::map<std::string, std::string>& fields,
                                               const std::string& text) const;
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::map<std::string, std::string>& fields) const;

  TextTemplate prompt_;
  std::string answer_;
  std::optional<job::v1::Chat> chat_;
  std::map<std::string, std::string> names_;
  std::vector<std::string> wanted_;  // required fields of every row
};

}  // namespace freshet

#endif  // FRESHET_DATASET_ROW_BUILDER_H_
