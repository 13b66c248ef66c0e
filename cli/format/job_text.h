#ifndef FRESHET_CLI_FORMAT_JOB_TEXT_H_
#define FRESHET_CLI_FORMAT_JOB_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/proto_time.h"
#include "cli/format/output_format.h"
#include "freshet/job/v1/job_service.pb.h"
#include "job/job_state.h"
#include "runlog/display_format.h"

namespace freshet {

// Jobs, events and checkpoints as text. Pure functions. Texts end with a newline unless noted.

// The inverse of StateName, case-insensitive. INVALID_ARGUMENT lists the states.
absl::StatusOr<freshet::job::v1::JobState> ParseState(std::string_view name);

// A list of jobs. Table: one line each; JSON and YAML: one array.
std::string FormatJobs(const std::vector<freshet::job::v1::Job>& jobs, OutputFormat format,
                       absl::Time now);
// One job. Table as in a list; JSON and YAML: one object.
std::string FormatJob(const freshet::job::v1::Job& job, OutputFormat format, absl::Time now);

// All details of one job: state and reason, progress, what it waits for, loss warnings, store, last
// events.
std::string DescribeJob(const freshet::job::v1::Job& job, absl::Time now,
                        const DisplayStyle& style);

// One event on one line without a newline; `time_zone` is the reader's. Metrics rows are
// abbreviated. `total_steps` 0 means unknown.
std::string FormatEvent(const freshet::job::v1::Event& event, int64_t total_steps,
                        absl::TimeZone time_zone);

// "groups: 3 queued, 12 leased, ..." in lifecycle order, without a newline; "" if there are none.
std::string FormatGroups(const google::protobuf::Map<std::string, int64_t>& groups);

std::string FormatCheckpoints(const freshet::job::v1::ListCheckpointsReply& reply,
                              OutputFormat format);

std::string FormatLogEntry(const freshet::job::v1::LogEntry& entry, const DisplayStyle& style,
                           absl::TimeZone time_zone);

// A row of samples.jsonl formatted for humans: prompt, completion, reward by component.
// INVALID_ARGUMENT if it is not a JSON object.
absl::StatusOr<std::string> FormatSample(std::string_view json, const DisplayStyle& style);

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_JOB_TEXT_H_
