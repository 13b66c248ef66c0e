#ifndef FRESHET_RUNLOG_DISPLAY_FORMAT_H_
#define FRESHET_RUNLOG_DISPLAY_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runlog/step_metrics.h"

namespace freshet {

// Pure functions that format a run for users. Widths are in terminal columns; every character used
// takes one. Texts do not end in a newline unless stated.

// Color uses ANSI sequences; callers disable it for NO_COLOR and pipes.
struct DisplayStyle {
  int width = 80;
  bool color = false;
};

// Setup shown before the run starts. Lines with empty text are omitted.
struct SetupView {
  std::string job;
  std::string model;  // "llama, 3 layers, hidden 128, fp32, random"
  int64_t parameters = 0;
  std::string dataset;  // "arithmetic, 2 operands, 2 digits, 8000 rows"
  int64_t prompts_per_step = 0;
  int64_t group_size = 0;
  int64_t steps = 0;
  int64_t staleness_bound = 0;
  std::string staleness_policy;
  std::string reward;   // "exact 1.0"
  std::string loss;     // the expanded preset
  std::string warning;  // warning about the loss
  std::string optimizer;
  std::string warmup;
  std::string evaluation;
  std::string threads;      // "1 trainer, 1 rollout engine, 2 scorers"
  std::string checkpoints;  // "every 20 steps, 2 kept"
  std::string run_dir;
  std::string resumed;  // "from step 40, lineage 1"
};

struct WarmupView {
  std::string stage;  // "sft"
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double seconds = 0;  // since the stage began
};

// A finished step with its context.
struct StepView {
  StepMetrics metrics;
  int64_t total_steps = 0;
  int64_t staleness_bound = 0;
  int64_t rollout_engines = 1;
  std::vector<double> recent_rewards;  // oldest first, ending with this step
  double seconds_left = 0;             // estimate; 0 if unknown
};

struct EvalView {
  EvalMetrics metrics;
  std::optional<double> first_accuracy;  // of the same evaluation, unless this is the first
};

// Adds context to a run's rows: recent rewards, the time left, the first accuracy of an evaluation.
class RunTrend {
 public:
  RunTrend(int64_t total_steps, int64_t staleness_bound, int64_t rollout_engines = 1)
      : total_steps_(total_steps),
        staleness_bound_(staleness_bound),
        rollout_engines_(rollout_engines) {}

  StepView Add(const StepMetrics& metrics);
  EvalView Add(const EvalMetrics& metrics);

 private:
  const int64_t total_steps_;
  const int64_t staleness_bound_;
  const int64_t rollout_engines_;
  std::deque<double> rewards_;
  std::deque<double> seconds_;  // of recent steps, to estimate the remaining time
  std::map<std::string, double> first_accuracy_;
};

// How a run ended and where its results are.
struct SummaryView {
  struct Evaluation {
    std::string name;
    double before = 0;
    double after = 0;
    int64_t before_version = 0;
    int64_t after_version = 0;
  };
  std::string job;
  std::string outcome;  // "finished" | "interrupted" | "failed: WHY"
  int64_t steps = 0;
  int64_t total_steps = 0;
  double wall_seconds = 0;
  std::vector<Evaluation> evaluations;
  double reward_first = 0;
  double reward_last = 0;
  int64_t staleness_max = 0;
  int64_t staleness_bound = 0;
  int64_t tokens_trained = 0;
  int64_t tokens_generated = 0;
  bool generates = false;  // a job of kind generate, which does not train
  int64_t groups_dropped = 0;
  std::string run_dir;
  std::string report;          // relative to run_dir, like `checkpoint`; "": none
  std::string checkpoint;      // newest
  std::string resume_command;  // empty if there is nothing to resume
};

// "812", "12.3k", "4.56M".
std::string HumanCount(double value);
// "4.2s", "45s", "1m23s", "2h05m".
std::string HumanSeconds(double seconds);
// The last `columns` values as bars of eight heights between their minimum and maximum. Non-finite
// values are blank.
std::string Sparkline(const std::vector<double>& values, size_t columns);
// `columns` wide, filled up to `fraction` (clamped to 0..1).
std::string ProgressBar(double fraction, int columns);
inline constexpr const char* kPaintBold = "1";
inline constexpr const char* kPaintDim = "2";
inline constexpr const char* kPaintRed = "31";
inline constexpr const char* kPaintGreen = "32";
inline constexpr const char* kPaintYellow = "33";
inline constexpr const char* kPaintCyan = "36";
// `text` in an ANSI style if `color`, else unchanged.
std::string Paint(std::string_view text, const char* code, bool color);

// Truncates text without ANSI sequences to `columns` characters.
std::string Cut(std::string_view text, int columns);
// Number of columns: UTF-8 characters, excluding ANSI sequences.
int Columns(std::string_view text);

// Several lines, each ending in a newline.
std::string FormatSetup(const SetupView& view, const DisplayStyle& style);
std::string FormatSummary(const SummaryView& view, const DisplayStyle& style);

// One line for a terminal, at most min(width, 120) columns. The least important parts are omitted
// first.
std::string FormatLiveStep(const StepView& view, const DisplayStyle& style);
std::string FormatLiveWarmup(const WarmupView& view, const DisplayStyle& style);
// One line for a pipe or file: words only, no bar or color, any length.
std::string FormatPlainStep(const StepView& view);
std::string FormatPlainWarmup(const WarmupView& view);
std::string FormatEval(const EvalView& view, const DisplayStyle& style);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_DISPLAY_FORMAT_H_
