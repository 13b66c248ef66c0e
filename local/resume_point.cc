#include "local/resume_point.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/ledger.h"
#include "runlog/jsonl.h"
#include "runlog/metrics_log.h"

namespace freshet {
namespace {

constexpr size_t kMaxRowBytes = size_t{1} << 20;  // of ParseLedgerRow

// Facts from the ledger of the earlier processes.
struct LedgerFacts {
  bool opened = false;
  int64_t seq = 0;
  int64_t epoch = 0;
  int64_t lineage = 0;
  int32_t attempt = -1;
};

absl::Status CheckOpenRow(const std::string& path, const LedgerRow& row,
                          const StoreOptions& options) {
  if (row.job != options.job) {
    return FailedPrecondition(path, ": belongs to job \"", row.job, "\", not to \"", options.job,
                              "\"");
  }
  const auto check = [&path](const char* key, const auto& began, const auto& now) {
    if (began == now) return absl::OkStatus();
    return FailedPrecondition(path, ": the run began with ", key, " ", began, ", the job says ",
                              now, "; start another run to change it");
  };
  const StalenessOptions& staleness = options.staleness;
  FRESHET_RETURN_IF_ERROR(check("staleness.max", row.bound, staleness.max));
  FRESHET_RETURN_IF_ERROR(
      check("staleness.policy", row.disposition, std::string(Name(staleness.disposition))));
  FRESHET_RETURN_IF_ERROR(
      check("prompts_per_step", row.groups_per_step, staleness.groups_per_step));
  FRESHET_RETURN_IF_ERROR(check("group_size", row.group_size, int64_t{options.group_size}));
  FRESHET_RETURN_IF_ERROR(check("replay.max_age", row.replay_max_age,
                                options.replay.has_value() ? options.replay->max_age : int64_t{0}));
  return check("adaptive_rollouts.min_group_size", row.min_group_size,
               int64_t{options.adaptive.has_value() ? options.adaptive->min_group_size : 0});
}

absl::StatusOr<LedgerFacts> ReadLedgerFacts(const std::string& path, const StoreOptions& options) {
  LedgerFacts facts;
  const auto add = [&](int64_t number, std::string_view line) -> absl::Status {
    const absl::StatusOr<LedgerRow> row = ParseLedgerRow(line);
    if (!row.ok()) return InvalidArgument(path, ":", number, ": ", Message(row.status()));
    if (row->event == LedgerEvent::kOpen) {
      FRESHET_RETURN_IF_ERROR(CheckOpenRow(path, *row, options));
      facts.opened = true;
    }
    facts.seq = std::max(facts.seq, row->seq);
    facts.epoch = std::max(facts.epoch, row->epoch);
    facts.lineage = std::max(facts.lineage, row->lineage);
    facts.attempt = std::max(facts.attempt, row->attempt);
    return absl::OkStatus();
  };
  const absl::Status read = ForEachLine(path, kMaxRowBytes, add).status();
  if (!read.ok() && !absl::IsNotFound(read)) return read;  // a new run has no ledger
  return facts;
}

}  // namespace

absl::StatusOr<ResumePoint> FindResumePoint(const RunFolder& folder, const StoreOptions& options) {
  ResumePoint point;
  FRESHET_ASSIGN_OR_RETURN(const LedgerFacts facts,
                           ReadLedgerFacts(folder.File("ledger.jsonl"), options));
  FRESHET_ASSIGN_OR_RETURN(FoundCheckpoints found,
                           FindAllCheckpoints(folder.File("checkpoints"), options.job));
  if (!found.complete.empty()) point.checkpoint = std::move(found.complete.front());
  point.damaged = std::move(found.damaged);
  if (!facts.opened) {
    // Killed before the first row was written, so nothing can be orphaned.
    point.checkpoint.reset();
    return point;
  }
  point.origin.resumed = true;
  point.origin.epoch = facts.epoch;
  point.origin.ledger_seq = facts.seq;
  point.origin.policy.lineage = facts.lineage + 1;
  point.origin.digest = InitialDigest();
  // A requeue after the last exported row may have used one more number.
  point.first_attempt = facts.attempt + 2;
  point.parent_lineage = facts.lineage;
  if (point.checkpoint.has_value()) {
    const TrainingState& state = point.checkpoint->state;
    point.origin.policy.version = state.policy.version;
    point.origin.digest = state.digest;
    point.origin.cursor = state.cursor;
    point.parent_lineage = state.policy.lineage;
  }
  const absl::StatusOr<MetricsHistory> metrics = ReadMetrics(folder.File("metrics.jsonl"));
  if (metrics.ok()) {
    for (const StepMetrics& step : metrics->steps) {
      point.wall_seconds = std::max(point.wall_seconds, step.wall_seconds);
    }
    MetricsHistory surviving = SurvivingMetrics(*metrics);
    for (StepMetrics& step : surviving.steps) {
      if (step.step > point.origin.policy.version || step.task_rewards.empty()) continue;
      point.task_rewards.push_back({step.lineage, step.step, std::move(step.task_rewards)});
    }
    for (const EvalMetrics& eval : surviving.evals) {
      if (eval.policy_version == point.origin.policy.version)
        point.evaluated.insert(eval.eval_name);
    }
    for (const EvalMetrics& eval : metrics->evals) {
      point.wall_seconds = std::max(point.wall_seconds, eval.wall_seconds);
    }
  }
  return point;
}

}  // namespace freshet
