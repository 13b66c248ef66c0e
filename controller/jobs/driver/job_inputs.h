#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_INPUTS_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_INPUTS_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "dataset/dataset.h"
#include "dataset/dataset_setup.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "freshet/trainer/v1/trainer_service.pb.h"
#include "freshet/trajectory/v1/trajectory.pb.h"
#include "text/tokenizer.h"

namespace freshet {

// What a controller needs of a job besides its spec. Thread-safe; immutable except for
// data.curriculum and data.growing.
struct JobInputs {
  std::shared_ptr<const trainer::v1::ModelBundle> model;
  std::unique_ptr<Tokenizer> tokenizer;
  JobDatasets data;
  PromptBounds bounds;
};

// Opens the datasets of a resolved job and checks every row with the model's tokenizer. Files are
// opened below `roots`. Errors: INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION; one line per
// error, naming the file or field and the fix.
absl::StatusOr<std::shared_ptr<const JobInputs>> OpenJobInputs(const job::v1::JobSpec& spec,
                                                               trainer::v1::ModelBundle bundle,
                                                               const DataRoots& roots);

constexpr int64_t kMaxRowsPerFetch = 4096;

// The first `total` rows of a dataset.
struct RowSource {
  const Dataset* rows = nullptr;
  int64_t total = 0;
};
RowSource TrainingRows(const JobInputs& inputs);
// The rows of an evaluation set; "" names the first one. NOT_FOUND: the job has no such set.
absl::StatusOr<RowSource> HeldOutRowsOf(const job::v1::JobSpec& spec, const JobInputs& inputs,
                                        std::string_view eval_set);

// Rows [first, first + count), at most kMaxRowsPerFetch rows and about 8 MiB. OUT_OF_RANGE or
// INVALID_ARGUMENT naming the field.
absl::StatusOr<std::vector<trajectory::v1::DatasetRow>> FetchRows(const RowSource& source,
                                                                  int64_t first, int64_t count);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_INPUTS_H_
