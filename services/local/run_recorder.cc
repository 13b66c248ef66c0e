#include "services/local/run_recorder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nlohmann/json.hpp"
#include "services/base/log.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kLedgerRowsPerCall = 4096;

const char* FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

int64_t Entered(const StoreStats& now, const StoreStats& before, GroupState state) {
  const auto index = static_cast<size_t>(state);
  return now.transitions[index] - before.transitions[index];
}

void AddRewards(const std::vector<TrainGroup>& groups, StepMetrics& metrics) {
  double sum = 0, squares = 0, count = 0;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      const Score& score = *sample.sample.score;
      sum += score.reward;
      squares += score.reward * score.reward;
      count += 1;
      for (const auto& [name, value] : score.components) metrics.reward_components[name] += value;
    }
  }
  for (auto& [name, value] : metrics.reward_components) value /= count;
  metrics.reward_mean = sum / count;
  metrics.reward_std = std::sqrt(std::max(0.0, squares / count - std::pow(sum / count, 2)));
}

void AddLengths(const std::vector<TrainGroup>& groups, StepMetrics& metrics) {
  std::vector<int64_t> lengths;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      lengths.push_back(static_cast<int64_t>(sample.sample.response->response_ids.size()));
    }
  }
  std::sort(lengths.begin(), lengths.end());
  double sum = 0;
  for (const int64_t length : lengths) sum += static_cast<double>(length);
  metrics.completion_length_mean = sum / static_cast<double>(lengths.size());
  metrics.completion_length_p95 = static_cast<double>(lengths[(lengths.size() - 1) * 95 / 100]);
  metrics.completion_length_max = lengths.back();
}

}  // namespace

StalenessSummary SummarizeStaleness(const std::vector<TrainGroup>& groups, int64_t train_version) {
  StalenessSummary summary;
  int64_t total = 0;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      for (const Span& span : sample.sample.response->spans) {
        int64_t tokens = 0;
        for (int32_t t = span.begin; t < span.end; ++t) {
          tokens += sample.loss_mask[static_cast<size_t>(t)];
        }
        if (tokens > 0) summary.tokens[train_version - span.policy.version] += tokens;
        total += tokens;
      }
    }
  }
  int64_t below = 0;
  bool median_found = false;
  for (const auto& [age, tokens] : summary.tokens) {
    summary.mean += static_cast<double>(age * tokens) / static_cast<double>(total);
    summary.max = std::max(summary.max, age);
    below += tokens;
    if (!median_found && 2 * below >= total) {
      summary.p50 = static_cast<double>(age);
      median_found = true;
    }
  }
  return summary;
}

absl::StatusOr<std::unique_ptr<RunRecorder>> RunRecorder::Create(
    const JobSetup& setup, const RunFolder& folder, TrajectoryStore& store,
    const RolloutWorker& rollout, Display& display, const Clock& clock, Options options) {
  FRESHET_ASSIGN_OR_RETURN(LedgerLog ledger, LedgerLog::Open(folder.File("ledger.jsonl")));
  FRESHET_ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(folder.File("metrics.jsonl")));
  FRESHET_ASSIGN_OR_RETURN(SamplesLog samples, SamplesLog::Open(folder.File("samples.jsonl")));
  return std::unique_ptr<RunRecorder>(new RunRecorder(setup, store, rollout, display, clock,
                                                      std::move(options), std::move(ledger),
                                                      std::move(metrics), std::move(samples)));
}

RunRecorder::RunRecorder(const JobSetup& setup, TrajectoryStore& store,
                         const RolloutWorker& rollout, Display& display, const Clock& clock,
                         Options options, LedgerLog ledger, MetricsLog metrics, SamplesLog samples)
    : setup_(setup),
      store_(store),
      rollout_(rollout),
      display_(display),
      clock_(clock),
      options_(std::move(options)),
      ledger_(std::move(ledger)),
      metrics_(std::move(metrics)),
      samples_(std::move(samples)),
      exported_seq_(options_.first_ledger_seq),
      last_step_(clock.Now()) {}

double RunRecorder::WallSeconds() const {
  return options_.wall_offset_seconds + absl::ToDoubleSeconds(clock_.Now() - options_.start);
}

absl::Status RunRecorder::OnCommitted() {
  const RolloutCounters rollout = rollout_.counters();
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, store_.Stats());
  {
    MutexLock lock(mu_);
    rollout_before_ = std::exchange(rollout_now_, rollout);
    stats_before_ = std::exchange(stats_now_, stats);
  }
  return ExportLedger();
}

absl::Status RunRecorder::ExportLedger() {
  MutexLock lock(mu_);
  while (true) {
    FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                             store_.ReadLedger(exported_seq_, kLedgerRowsPerCall));
    if (rows.empty()) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(ledger_.Append(rows));
    exported_seq_ = rows.back().seq;
    FRESHET_RETURN_IF_ERROR(store_.TrimLedger(exported_seq_));
  }
}

absl::Status RunRecorder::OnStep(const FinishedStep& report, const WeightSnapshot& weights) {
  if (options_.before_step) FRESHET_RETURN_IF_ERROR(options_.before_step());
  {
    MutexLock lock(mu_);
    const StepMetrics metrics = MakeMetrics(report);
    FRESHET_RETURN_IF_ERROR(metrics_.Append(metrics));
    FRESHET_RETURN_IF_ERROR(samples_.Append(MakeSamples(report)));
    display_.ShowStep(metrics);
    if (options_.metrics != nullptr) options_.metrics->Observe(metrics);
    if (options_.rows) options_.rows(ToJson(metrics));
  }
  return options_.on_published ? options_.on_published(report.step, weights) : absl::OkStatus();
}

StepMetrics RunRecorder::MakeMetrics(const FinishedStep& report) {
  const std::vector<TrainGroup>& groups = *report.groups;
  const TrainStepResult& result = report.result;
  StepMetrics m;
  m.step = report.step;
  m.policy_version = report.policy.version;
  m.lineage = report.policy.lineage;
  AddRewards(groups, m);
  AddLengths(groups, m);
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.learning_rate = result.learning_rate;
  m.entropy = result.entropy;
  m.kl_behavior = result.kl_behavior;
  if (setup_.loss.NeedsReference()) m.kl_ref = result.kl_ref;
  m.ratio_clip_fraction = result.ratio_clip_fraction;
  m.importance_weight_mean = result.importance_weight_mean;
  StalenessSummary staleness = SummarizeStaleness(groups, report.step - 1);
  m.staleness_mean = staleness.mean;
  m.staleness_p50 = staleness.p50;
  m.staleness_max = staleness.max;
  m.staleness_tokens = std::move(staleness.tokens);
  m.tokens_trained = result.tokens_trained;

  m.tokens_generated = rollout_now_.tokens_generated - rollout_before_.tokens_generated;
  m.rollout_idle_seconds = rollout_now_.idle_seconds - rollout_before_.idle_seconds;
  m.weight_swap_seconds = rollout_now_.swap_seconds - rollout_before_.swap_seconds;
  m.groups_dropped = Entered(stats_now_, stats_before_, GroupState::kDropped);
  m.groups_filtered = Entered(stats_now_, stats_before_, GroupState::kFiltered);
  m.groups_requeued = Entered(stats_now_, stats_before_, GroupState::kRequeued);
  m.groups_dead = Entered(stats_now_, stats_before_, GroupState::kDead);
  m.trainer_wait_seconds = report.wait_seconds;
  m.train_seconds = report.train_seconds;
  m.optimizer_seconds = result.optimizer_seconds;
  m.checkpoint_seconds = report.checkpoint_seconds;
  const absl::Time now = clock_.Now();
  m.step_seconds = absl::ToDoubleSeconds(now - last_step_);
  last_step_ = now;
  m.wall_seconds = WallSeconds();
  return m;
}

std::vector<SampleRow> RunRecorder::MakeSamples(const FinishedStep& report) const {
  std::vector<SampleRow> rows;
  const auto wanted = static_cast<size_t>(setup_.spec.output().samples_per_step());
  for (const TrainGroup& group : *report.groups) {
    for (const TrainSample& sample : group.samples) {
      if (rows.size() == wanted) return rows;
      const Response& response = *sample.sample.response;
      SampleRow& row = rows.emplace_back();
      row.step = report.step;
      row.policy_version = report.policy.version;
      row.lineage = report.policy.lineage;
      row.uid = sample.sample.uid;
      const auto& attributes = sample.sample.prompt->attributes;
      const auto prompt = attributes.find("prompt");
      if (prompt != attributes.end()) row.prompt = prompt->second;
      row.completion = setup_.tokenizer->Decode(response.response_ids, /*skip_special=*/true);
      row.reward = sample.sample.score->reward;
      row.components = sample.sample.score->components;
      row.tokens = static_cast<int64_t>(response.response_ids.size());
      row.spans = response.spans;
      row.finish = FinishName(response.finish);
    }
  }
  return rows;
}

void RunRecorder::OnStalled(const std::string& reason, absl::Duration waited) {
  display_.ShowNote(
      StrCat("waiting for ", static_cast<int64_t>(absl::ToDoubleSeconds(waited)), " s: ", reason));
  EmitEvent("stalled", {{"reason", reason}});
}

absl::Status RunRecorder::RecordEval(EvalMetrics metrics) {
  metrics.wall_seconds = WallSeconds();
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(metrics_.Append(metrics));
  display_.ShowEval(metrics);
  if (options_.metrics != nullptr) options_.metrics->Observe(metrics);
  if (options_.rows) options_.rows(ToJson(metrics));
  return absl::OkStatus();
}

void RunRecorder::EmitEvent(const std::string& name,
                            const std::map<std::string, std::string>& fields) {
  if (!options_.rows) return;
  nlohmann::ordered_json event = {{"event", name}};
  for (const auto& [key, value] : fields) event[key] = value;
  options_.rows(event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace freshet
