#ifndef FRESHET_RUNLOG_JOB_FACTS_H_
#define FRESHET_RUNLOG_JOB_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace freshet {

// Values from a finished run's job.yaml. Absent keys stay empty.
struct JobFacts {
  std::string yaml;  // file contents
  std::string name;
  std::optional<int64_t> prompts_per_step;
  std::optional<int64_t> group_size;
  std::optional<int64_t> staleness_max;
  std::string staleness_policy;
  std::optional<int64_t> replay_max_age;
  std::optional<int64_t> min_group_size;  // of adaptive_rollouts
  std::optional<int64_t> steps;
};

// Returns:
//   NOT_FOUND: no such file.
//   INVALID_ARGUMENT: not a YAML mapping, or over 1 MiB.
absl::StatusOr<JobFacts> ReadJobFacts(const std::string& path);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_JOB_FACTS_H_
