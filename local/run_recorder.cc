#include "local/run_recorder.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "trainer/loop/step_report.h"

namespace freshet {
namespace {

constexpr int64_t kLedgerRowsPerCall = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<RunRecorder>> RunRecorder::Create(
    const JobSetup& setup, const RunFolder& folder, TrajectoryStore& store, Display& display,
    const Clock& clock, Options options) {
  FRESHET_ASSIGN_OR_RETURN(LedgerLog ledger, LedgerLog::Open(folder.File("ledger.jsonl")));
  FRESHET_ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(folder.File("metrics.jsonl")));
  FRESHET_ASSIGN_OR_RETURN(SamplesLog samples, SamplesLog::Open(folder.File("samples.jsonl")));
  return std::unique_ptr<RunRecorder>(new RunRecorder(setup, store, display, clock,
                                                      std::move(options), std::move(ledger),
                                                      std::move(metrics), std::move(samples)));
}

RunRecorder::RunRecorder(const JobSetup& setup, TrajectoryStore& store, Display& display,
                         const Clock& clock, Options options, LedgerLog ledger, MetricsLog metrics,
                         SamplesLog samples)
    : setup_(setup),
      store_(store),
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
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, store_.Stats());
  {
    MutexLock lock(mu_);
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
    const std::vector<SampleRow> samples = SampleRows(
        report, setup_.spec.output().samples_per_step(), [this](const std::vector<int32_t>& ids) {
          return setup_.model.tokenizer->Decode(ids, /*skip_special=*/true);
        });
    FRESHET_RETURN_IF_ERROR(samples_.Append(samples));
    display_.ShowStep(metrics);
    if (setup_.data.curriculum != nullptr) {
      setup_.data.curriculum->Observe(metrics.lineage, metrics.step, metrics.task_rewards);
    }
    if (options_.metrics != nullptr) options_.metrics->Observe(metrics, report);
    EmitRow(ToJson(metrics));
    if (options_.status != nullptr) options_.status->AddSamples(samples);
  }
  return options_.on_published ? options_.on_published(report.step, weights) : absl::OkStatus();
}

StepMetrics RunRecorder::MakeMetrics(const FinishedStep& report) {
  StepMetrics m = SummarizeStep(report, stats_before_, stats_now_, setup_.loss.NeedsReference(),
                                !setup_.spec.tasks().empty());
  const absl::Time now = clock_.Now();
  m.step_seconds = absl::ToDoubleSeconds(now - last_step_);
  last_step_ = now;
  m.wall_seconds = WallSeconds();
  return m;
}

void RunRecorder::OnStalled(const std::string& reason, absl::Duration waited) {
  const std::string detail = options_.rollout_waits ? options_.rollout_waits() : "";
  const std::string text = StrCat(reason, detail.empty() ? "" : "; ", detail);
  display_.ShowNote(
      StrCat("waiting for ", static_cast<int64_t>(absl::ToDoubleSeconds(waited)), " s: ", text));
  EmitEvent("stalled", {{"reason", text}});
}

absl::Status RunRecorder::RecordEval(EvalMetrics metrics) {
  metrics.wall_seconds = WallSeconds();
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(metrics_.Append(metrics));
  display_.ShowEval(metrics);
  if (options_.metrics != nullptr) options_.metrics->Observe(metrics);
  EmitRow(ToJson(metrics));
  return absl::OkStatus();
}

void RunRecorder::OnEvaluationFailed(const std::string& reason) {
  display_.ShowNote(reason);
  EmitEvent("evaluation_failed", {{"reason", reason}});
}

void RunRecorder::EmitRow(const std::string& json) const {
  if (options_.rows) options_.rows(json);
  if (options_.status != nullptr) options_.status->AddRow(json);
}

void RunRecorder::EmitEvent(const std::string& name,
                            const std::map<std::string, std::string>& fields) {
  if (options_.status != nullptr) options_.status->AddNotice(name, fields);
  if (!options_.rows) return;
  nlohmann::ordered_json event = {{"event", name}};
  for (const auto& [key, value] : fields) event[key] = value;
  options_.rows(event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace freshet
