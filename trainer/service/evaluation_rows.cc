#include "trainer/service/evaluation_rows.h"

#include <optional>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/str_cat.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/step_metrics.h"
#include "trainer/loop/trainer_setup.h"

namespace freshet {

EvaluationRows::EvaluationRows(EventLog& events, const std::string& job,
                               const job::v1::JobSpec& spec)
    : events_(events), stream_(StrCat("{", job, "}:events")), spec_(spec) {}

std::vector<CheckpointScore> EvaluationRows::Next() {
  std::vector<CheckpointScore> scores;
  while (true) {
    const absl::StatusOr<EventPage> page =
        events_.Read(stream_, cursor_, kMaxEventPage, absl::ZeroDuration());
    if (!page.ok()) {
      FRESHET_LOG(Warning) << "event=evaluations_not_read error="
                           << LogQuoted(Message(page.status()));
      if (absl::IsOutOfRange(page.status())) cursor_ = 0;
      return scores;
    }
    if (page->events.empty()) return scores;
    for (const StoredEvent& stored : page->events) {
      cursor_ = stored.cursor;
      if (!stored.key.starts_with("eval/")) continue;
      job::v1::Event event;
      if (!event.ParseFromString(stored.value)) continue;
      const absl::StatusOr<MetricsRow> row = ParseMetricsRow(event.metrics_json());
      if (!row.ok()) continue;
      const auto* metrics = std::get_if<EvalMetrics>(&*row);
      if (metrics == nullptr) continue;
      if (std::optional<CheckpointScore> score = ScoreOf(*metrics, spec_)) {
        scores.push_back(*std::move(score));
      }
    }
  }
}

}  // namespace freshet
