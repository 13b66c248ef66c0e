#ifndef FRESHET_DATASET_DATASET_SETUP_H_
#define FRESHET_DATASET_DATASET_SETUP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "dataset/dataset.h"
#include "dataset/growing_dataset.h"
#include "dataset/prompt_feeder.h"
#include "dataset/task_curriculum.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "text/tokenizer.h"

namespace freshet {

struct JobDatasets {
  std::shared_ptr<const Dataset> train;
  // By evaluation set (EvalSets), which uses the first rows. Sets may share an object.
  std::vector<std::shared_ptr<const Dataset>> held_out;
  // Of `train`; null without `curriculum`. It is told of each training step's rewards.
  std::shared_ptr<TaskCurriculum> curriculum = nullptr;
  // `train`, if it grows (dataset.more_path).
  std::shared_ptr<GrowingDataset> growing = nullptr;
  std::string warning = {};  // the folder for further files is missing; "" otherwise
};

// Opens the training and evaluation rows of a resolved job. Files are opened below `roots`. Errors
// have one line each, naming the file or field and the fix.
absl::StatusOr<JobDatasets> OpenDatasets(const job::v1::JobSpec& spec, const DataRoots& roots);

// `tokenizer` must outlive the encoder.
PromptEncoder MakePromptEncoder(const job::v1::JobSpec& spec, const Tokenizer& tokenizer);

// Prompt lengths in tokens.
struct PromptBounds {
  int64_t most = 0;     // maximum that leaves room for the longest response
  int64_t longest = 0;  // longest prompt in the rows
};

// Checks all rows before a job starts: each prompt must encode and leave room for the response in
// the model's context of `context_tokens`. With a supervised warm-up, answers are checked too. Rows
// that are added later must be no longer than the longest one; `tokenizer` must then outlive
// `data`. INVALID_ARGUMENT: one line per error, each naming the row.
absl::StatusOr<PromptBounds> CheckRows(const job::v1::JobSpec& spec, const JobDatasets& data,
                                       const Tokenizer& tokenizer, int64_t context_tokens);

// Feeder options determined by the job: seed, order and bounds.
PromptFeederOptions MakeFeederOptions(const job::v1::JobSpec& spec, const PromptBounds& bounds);

}  // namespace freshet

#endif  // FRESHET_DATASET_DATASET_SETUP_H_
