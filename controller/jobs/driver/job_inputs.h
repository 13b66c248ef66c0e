#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_INPUTS_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_INPUTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "dataset/dataset.h"
#include "dataset/dataset_setup.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "freshet/trainer/v1/trainer_service.pb.h"
#include "freshet/trajectory/v1/trajectory.pb.h"
#include "text/tokenizer.h"

namespace freshet {

// What a controller needs of a job besides its spec. Immutable; thread-safe.
struct JobInputs {
  std::shared_ptr<const trainer::v1::ModelBundle> model;
  std::unique_ptr<Tokenizer> tokenizer;
  DatasetSplit data;  // held_out is null without evaluation
  PromptBounds bounds;
};

// Opens the datasets of a resolved job and checks every row with the model's tokenizer. Files are
// opened below `roots`. Errors: INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION; one line per
// error, naming the file or field and the fix.
absl::StatusOr<std::shared_ptr<const JobInputs>> OpenJobInputs(const job::v1::JobSpec& spec,
                                                               trainer::v1::ModelBundle bundle,
                                                               const DataRoots& roots);

constexpr int64_t kMaxRowsPerFetch = 4096;

// Rows [first, first + count) of the training or held-out rows, at most kMaxRowsPerFetch rows and
// about 8 MiB. Only the first eval.rows held-out rows exist. OUT_OF_RANGE or INVALID_ARGUMENT
// naming the field.
absl::StatusOr<std::vector<trajectory::v1::DatasetRow>> FetchRows(const job::v1::JobSpec& spec,
                                                                  const JobInputs& inputs,
                                                                  bool held_out, int64_t first,
                                                                  int64_t count);
int64_t NumRows(const job::v1::JobSpec& spec, const JobInputs& inputs, bool held_out);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_INPUTS_H_
