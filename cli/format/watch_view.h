#ifndef FRESHET_CLI_FORMAT_WATCH_VIEW_H_
#define FRESHET_CLI_FORMAT_WATCH_VIEW_H_

#include <cstdint>
#include <deque>
#include <map>
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

// Shows a job as it goes: events in, text to be written to the terminal or pipe out. On a terminal
// the newest step, the store's queues and what the job waits for are live lines below everything
// else; elsewhere each event is a line, and queues are left out. Pure. Confined to one thread.
class WatchView {
 public:
  WatchView(const freshet::job::v1::Job& job, const WatchStyle& style);

  // The next event of the job.
  std::string Apply(const freshet::job::v1::Event& event);
  // The job as it stands now: queues, what it waits for, workers.
  std::string SetJob(const freshet::job::v1::Job& job);
  // A line of our own: "connection lost, trying again".
  std::string Note(std::string_view note);
  // Leaves the live lines where they stand; to be written last.
  std::string Finish();

  freshet::job::v1::JobState state() const { return state_; }
  const std::string& reason() const { return reason_; }

 private:
  std::string ApplyMetrics(const std::string& json);
  // `lines` (each ended by a newline) above the live lines, which are drawn anew.
  std::string Write(const std::string& lines);
  std::vector<std::string> LiveLines() const;

  const WatchStyle style_;
  freshet::job::v1::JobState state_;
  std::string reason_;
  int64_t total_steps_ = 0;
  int64_t staleness_bound_ = 0;
  std::string groups_;
  std::string waits_for_;
  bool has_step_ = false;
  StepView step_;
  std::deque<double> rewards_;
  std::deque<double> seconds_;  // of recent steps, for the estimate
  std::map<std::string, double> first_accuracy_;
  size_t live_lines_ = 0;  // that stand on the terminal now
};

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_WATCH_VIEW_H_
