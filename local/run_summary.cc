#include "local/run_summary.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "job/eval_sets.h"
#include "job/job_kind.h"
#include "job/loss_spec.h"
#include "job/tasks.h"
#include "rollout/worker/rollout_setup.h"
#include "runlog/metrics_log.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace freshet {
namespace {

std::string DescribeModel(const JobSetup& setup) {
  const std::string origin =
      setup.model.files == nullptr ? "random weights" : setup.spec.model().path();
  const ModelConfig& config = setup.model.config;
  return StrCat(config.model_type, ", ", config.num_hidden_layers, " layers, hidden ",
                config.hidden_size, ", vocabulary ", config.vocab_size, ", ",
                setup.spec.model().dtype(), ", ", origin);
}

std::string DescribeData(const JobSetup& setup) {
  if (!setup.spec.tasks().empty()) {
    return StrCat(absl::StrJoin(TaskNames(setup.spec), ", "), ", ", setup.data.train->size(),
                  " rows");
  }
  const job::v1::Dataset& data = setup.spec.dataset();
  std::string text = StrCat(data.type(), ", ", setup.data.train->size(), " rows");
  if (!data.path().empty()) text += StrCat(" of ", data.path());
  return text;
}

std::string DescribeRewards(const job::v1::Reward& reward) {
  std::map<std::string, double> weights;
  for (const auto& [name, component] : reward.components()) weights[name] = component.weight();
  std::string text;
  for (const auto& [name, weight] : weights) {
    text += StrCat(text.empty() ? "" : " + ", weight, " ", name);
  }
  return text;
}

std::string DescribeEvaluation(const JobSpec& spec) {
  std::string text;
  for (const job::v1::EvalSet& set : EvalSets(spec)) {
    text += StrCat(text.empty() ? "" : "; ", set.name(), ", ", set.rows(), " rows");
    if (set.samples_per_prompt() > 1) text += StrCat(" x ", set.samples_per_prompt(), " samples");
  }
  return StrCat(text, " every ", spec.eval().every_steps(), " steps");
}

// The newest checkpoint in ROOT/checkpoints, relative to ROOT.
std::string NewestCheckpoint(const std::string& run_dir) {
  const std::vector<ListedCheckpoint> listed = ListCheckpoints(run_dir + "/checkpoints");
  if (listed.empty()) return "";
  return StrCat("checkpoints/", std::filesystem::path(listed.front().path).filename().string());
}

}  // namespace

SetupView DescribeSetup(const JobSetup& setup, const std::string& run_dir, int64_t parameters,
                        int trainer_threads, const StoreOrigin& origin) {
  const JobSpec& spec = setup.spec;
  SetupView view;
  view.job = spec.name();
  view.model = DescribeModel(setup);
  view.parameters = parameters;
  view.dataset = DescribeData(setup);
  view.prompts_per_step = spec.prompts_per_step();
  view.group_size = spec.group_size();
  view.steps = spec.trainer().steps();
  view.staleness_bound = spec.staleness().max();
  view.staleness_policy = spec.staleness().policy();
  view.reward = DescribeRewards(spec.reward());
  if (Generates(spec)) {
    view.loss = StrCat("none, samples are written to ", run_dir, "/generated");
  } else {
    view.loss = DescribeLoss(setup.loss);
    view.warning = UncorrectedStaleness(setup.loss, view.staleness_bound).value_or("");
    view.optimizer = StrCat("AdamW, learning rate ", spec.optimizer().learning_rate(), " ",
                            spec.optimizer().schedule());
  }
  if (spec.warmup().has_sft() && !origin.resumed) {
    view.warmup = StrCat("supervised, ", spec.warmup().sft().steps(), " steps of ",
                         spec.warmup().sft().batch_size(), " rows");
  }
  if (spec.has_eval()) {
    view.evaluation = DescribeEvaluation(spec);
  }
  view.threads = StrCat(trainer_threads, " trainer, ", MakeEngineOptions(spec).threads,
                        " rollout engine, 1 scorer");
  const job::v1::Checkpoint& checkpoint = spec.checkpoint();
  view.checkpoints =
      StrCat("every ", checkpoint.every_steps(), " steps, ", checkpoint.keep_last(), " kept");
  if (checkpoint.keep_every() > 0) {
    view.checkpoints += StrCat(", multiples of ", checkpoint.keep_every(), " kept");
  }
  if (checkpoint.keep_best() > 0) view.checkpoints += StrCat(", ", checkpoint.keep_best(), " best");
  view.run_dir = run_dir;
  if (origin.resumed) {
    view.resumed = StrCat("from step ", origin.policy.version, ", lineage ", origin.policy.lineage);
  }
  return view;
}

SummaryView DescribeEnd(const JobSpec& spec, const std::string& run_dir,
                        const absl::Status& failure) {
  SummaryView view;
  view.job = spec.name();
  view.generates = Generates(spec);
  view.total_steps = spec.trainer().steps();
  view.staleness_bound = spec.staleness().max();
  view.run_dir = run_dir;
  view.checkpoint = NewestCheckpoint(run_dir);
  if (std::filesystem::exists(run_dir + "/report.html")) view.report = "report.html";
  std::map<std::string, SummaryView::Evaluation> evaluations;
  const absl::StatusOr<MetricsHistory> history = ReadMetrics(run_dir + "/metrics.jsonl");
  if (history.ok()) {
    const MetricsHistory rows = SurvivingMetrics(*history);
    for (const StepMetrics& step : rows.steps) {
      view.staleness_max = std::max(view.staleness_max, step.staleness_max);
      view.tokens_trained += step.tokens_trained;
      view.tokens_generated += step.tokens_generated;
      view.groups_dropped += step.groups_dropped;
      view.wall_seconds = std::max(view.wall_seconds, step.wall_seconds);
    }
    if (!rows.steps.empty()) {
      view.steps = rows.steps.back().step;
      view.reward_first = rows.steps.front().reward_mean;
      view.reward_last = rows.steps.back().reward_mean;
    }
    for (const EvalMetrics& eval : rows.evals) {
      const auto [entry, first] = evaluations.try_emplace(eval.eval_name);
      if (first) {
        entry->second = {eval.eval_name, eval.eval_accuracy, 0, eval.policy_version, 0};
      }
      entry->second.after = eval.eval_accuracy;
      entry->second.after_version = eval.policy_version;
      view.wall_seconds = std::max(view.wall_seconds, eval.wall_seconds);
    }
    for (const auto& [name, evaluation] : evaluations) view.evaluations.push_back(evaluation);
  }
  const bool finished = view.steps >= view.total_steps;
  view.outcome = !failure.ok() ? StrCat("failed: ", Message(failure))
                 : finished    ? "finished"
                               : "interrupted";
  const std::vector<job::v1::EvalSet> sets = EvalSets(spec);
  const bool evaluated = std::all_of(sets.begin(), sets.end(), [&](const job::v1::EvalSet& set) {
    const auto entry = evaluations.find(set.name());
    return entry != evaluations.end() && entry->second.after_version >= view.total_steps;
  });
  if (!finished || !evaluated) view.resume_command = StrCat("freshet local --resume ", run_dir);
  return view;
}

}  // namespace freshet
