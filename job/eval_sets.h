#ifndef FRESHET_JOB_EVAL_SETS_H_
#define FRESHET_JOB_EVAL_SETS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// All functions are pure and thread-safe.

// The evaluation sets of a job, in order, with every setting filled in: `eval.sets` with the
// defaults of `eval`, or the one set that `eval` describes (with `tasks`, one of each task). Empty
// without `eval`. Also takes jobs that were resolved before a key existed.
std::vector<job::v1::EvalSet> EvalSets(const job::v1::JobSpec& spec);

// The set called `name`; the first one if `name` is empty. NOT_FOUND: the job has no such set.
absl::StatusOr<job::v1::EvalSet> FindEvalSet(const job::v1::JobSpec& spec, std::string_view name);

bool IsFirstEvalSet(const job::v1::JobSpec& spec, std::string_view name);

// File with the rows of `set`; "" if its rows are held out of the training rows, or generated.
std::string EvalPath(const job::v1::JobSpec& spec, const job::v1::EvalSet& set);

// Number of rows to hold out of the training rows, or to generate: the most that a set without a
// file uses, 0 if there is none. Of a job without `tasks` (TaskSpec).
int64_t HeldOutRows(const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_EVAL_SETS_H_
