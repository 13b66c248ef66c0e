#ifndef FRESHET_CLI_FORMAT_WATCH_VIEW_H_
#define FRESHET_CLI_FORMAT_WATCH_VIEW_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/display_format.h"

namespace freshet {

struct WatchStyle {
  bool terminal = false;  // live lines at the bottom, overwritten in place
  bool color = false;
  int width = 80;
  absl::TimeZone time_zone;
};

// Renders a job's progress: takes events, returns text to write to the terminal or pipe. On a
// terminal the newest step, the store's queues and what the job waits for are live lines at the
// bottom; otherwise each event is a line, and queues are left out. No I/O. Not thread-safe.
class WatchView {
 public:
  WatchView(const freshet::job::v1::Job& job, const WatchStyle& style);

  std::string Apply(const freshet::job::v1::Event& event);
  // Updates the job's state: queues, what it waits for, workers.
  std::string SetJob(const freshet::job::v1::Job& job);
  // Adds a line, such as "connection lost, trying again".
  std::string Note(std::string_view note);
  // Keeps the live lines on screen; write its result last.
  std::string Finish();

 private:
  std::string ApplyMetrics(const std::string& json);
  // Renders `lines` (each terminated by a newline) above the redrawn live lines.
  std::string Write(const std::string& lines);
  std::vector<std::string> LiveLines() const;

  const WatchStyle style_;
  int64_t total_steps_ = 0;
  std::string groups_;
  std::string waits_for_;
  bool has_step_ = false;
  StepView step_;
  RunTrend trend_;
  size_t live_lines_ = 0;  // number of live lines on the terminal
};

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_WATCH_VIEW_H_
