#ifndef FRESHET_RUNLOG_DISPLAY_H_
#define FRESHET_RUNLOG_DISPLAY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "runlog/display_format.h"

namespace freshet {

struct DisplayOptions {
  bool terminal = false;  // the sink is a terminal: one live line, overwritten in place
  bool color = false;     // false if NO_COLOR is set
  int width = 80;         // columns
  int64_t total_steps = 0;
  int64_t staleness_bound = 0;
  int64_t rollout_engines = 1;
  // Current terminal columns, queried before each live line; 0: unknown. May be null.
  std::function<int()> measure_width = nullptr;
};

// Shows a run to a user. On a terminal the newest step (or warm-up step) is a live line that the
// next one overwrites, and everything else scrolls above it. Otherwise each is a plain line.
//
// A lock serializes writes to the sink and is held while it runs.
// Thread-safe.
class Display {
 public:
  // Receives texts in order. Must not call back.
  using Sink = std::function<void(std::string_view)>;

  Display(const DisplayOptions& options, Sink sink);
  // Ends the live line.
  ~Display();
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  void ShowSetup(const SetupView& view);
  // Plain style: only every tenth of the stage.
  void ShowWarmup(const WarmupView& view);
  void ShowStep(const StepMetrics& metrics);
  void ShowEval(const EvalMetrics& metrics);
  // One line of text, for events and warnings.
  void ShowNote(std::string_view note);
  void ShowSummary(const SummaryView& view);

 private:
  void FollowWidth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteLive(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `text` consists of complete lines.
  void WriteLines(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  DisplayStyle Style() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Sink sink_;
  Mutex mu_;
  DisplayOptions options_ ABSL_GUARDED_BY(mu_);
  std::string live_ ABSL_GUARDED_BY(mu_);  // current line without its newline
  RunTrend trend_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_DISPLAY_H_
