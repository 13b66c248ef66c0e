#ifndef FRESHET_DATASET_TEMPLATE_DATASET_H_
#define FRESHET_DATASET_TEMPLATE_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dataset/dataset.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// The rows given in the job file, `dataset.rows`. `required`: as for RowBuilder. Thread-safe.
// INVALID_ARGUMENT: no rows, a bad template, or rows that lack a field: "dataset.rows[I]: ...", at
// most 5 lines, then "and N more".
absl::StatusOr<std::unique_ptr<Dataset>> MakeTemplateDataset(
    const job::v1::Dataset& dataset, const std::vector<std::string>& required = {});

}  // namespace freshet

#endif  // FRESHET_DATASET_TEMPLATE_DATASET_H_
