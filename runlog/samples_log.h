#ifndef FRESHET_RUNLOG_SAMPLES_LOG_H_
#define FRESHET_RUNLOG_SAMPLES_LOG_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/trajectory.h"
#include "runlog/jsonl.h"

namespace freshet {

// One row of samples.jsonl: a human-readable sample.
struct SampleRow {
  int64_t step = 0;            // training step that used it
  int64_t policy_version = 0;  // version that this step published
  int64_t lineage = 0;
  std::string uid;
  std::string prompt;      // text
  std::string completion;  // text
  double reward = 0;
  std::map<std::string, double> components;  // unweighted value by name
  double advantage = 0;
  int64_t tokens = 0;  // of the completion
  std::vector<Span> spans;
  std::vector<int32_t> segments;  // as in Response
  std::string finish;             // stop | length
};

// One line without its newline: fixed key order, non-finite numbers as null, invalid UTF-8
// replaced.
std::string ToJson(const SampleRow& row);
// For a page: prompt and completion are cut at kMaxSampleText bytes, between two characters; the
// additional key `truncated` says whether one was.
std::string ToShortJson(SampleRow row);
constexpr size_t kMaxSampleText = 4000;
// Inverse; absent keys keep their defaults. INVALID_ARGUMENT for anything malformed.
absl::StatusOr<SampleRow> ParseSampleRow(std::string_view line);

// Writes samples.jsonl.
using SamplesLog = JsonlLog;

// The first and last rows of a samples.jsonl, without overlap.
struct SampleExcerpt {
  std::vector<SampleRow> first;
  std::vector<SampleRow> last;
};

// Reads the file in one pass, keeping at most `num_first` and `num_last` rows. Skips malformed
// rows. NOT_FOUND: no such file.
absl::StatusOr<SampleExcerpt> ReadSampleExcerpt(const std::string& path, size_t num_first,
                                                size_t num_last);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_SAMPLES_LOG_H_
