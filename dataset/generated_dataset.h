#ifndef FRESHET_DATASET_GENERATED_DATASET_H_
#define FRESHET_DATASET_GENERATED_DATASET_H_

#include <memory>

#include "absl/status/statusor.h"
#include "dataset/dataset.h"
#include "dataset/generated_space.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// The rows of a job with dataset.type arithmetic or copy. Rows are distinct; training and held-out
// rows are disjoint (generated_space.h). Thread-safe.
//
// arithmetic: sums such as "12+34=" with answer "046": `operands` (2..10) are zero-padded to
// `digits` characters, the sum to `digits` + 1; operands * digits <= 18.
//
// copy: texts to repeat, "gabf=" with answer "gabf": `length` of `symbols`, which are distinct
// characters (UTF-8) without '='; (number of symbols)^length <= 2^62.
//
// INVALID_ARGUMENT: a key is out of range; the message names it, its value and its bound.
absl::StatusOr<std::unique_ptr<Dataset>> MakeGeneratedDataset(const job::v1::JobSpec& spec,
                                                              DatasetPart part);

}  // namespace freshet

#endif  // FRESHET_DATASET_GENERATED_DATASET_H_
