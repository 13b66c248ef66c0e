#ifndef FRESHET_CLI_TENSORBOARD_EVENT_FILE_H_
#define FRESHET_CLI_TENSORBOARD_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runlog/metrics_log.h"

namespace freshet {

// TensorBoard's event files: TFRecords, each with a serialized `tensorflow.Event`. Written by hand,
// without TensorFlow: https://github.com/tensorflow/tensorboard, proto/event.proto, summary.proto.

// Scalars of one step: (tag, value).
using Scalars = std::vector<std::pair<std::string, float>>;

// The record that begins a file.
std::string VersionRecord(double wall_time);
// The record of one step's scalars; `wall_time` in seconds since 1970.
std::string ScalarRecord(double wall_time, int64_t step, const Scalars& scalars);

// All records for the rows of a run: tags are "train/KEY", "staleness_tokens/AGE",
// "reward/COMPONENT" and "eval/NAME/KEY". `start` is when the run began, seconds since 1970. A
// value that is not finite is left out.
std::string EventFileOf(const MetricsHistory& history, double start);

// Writes the event file of a run folder into `folder` (made when absent) and returns its path.
// Repeating it replaces the file.
// Errors: those of ReadMetrics; FAILED_PRECONDITION, RESOURCE_EXHAUSTED: it cannot be written.
absl::StatusOr<std::string> ExportTensorboard(const std::string& run_dir,
                                              const std::string& folder);

// The same of rows that are there already; `start` as of EventFileOf.
absl::StatusOr<std::string> WriteEventFile(const MetricsHistory& history, double start,
                                           const std::string& folder);

}  // namespace freshet

#endif  // FRESHET_CLI_TENSORBOARD_EVENT_FILE_H_
