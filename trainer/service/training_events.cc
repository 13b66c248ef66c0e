#include "trainer/service/training_events.h"

#include <iterator>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "base/proto_time.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Waits for the datastore if the work ends while rows wait.
constexpr absl::Duration kFirstRowsPause = absl::Milliseconds(50);
constexpr absl::Duration kMostRowsPause = absl::Milliseconds(500);
constexpr absl::Duration kLastRowsWait = absl::Seconds(10);
constexpr absl::Duration kStoppedRowsWait = absl::Seconds(2);  // a drain has little time

}  // namespace

TrainingEvents::TrainingEvents(EventLog& log, std::string job, TrainingListener* listener,
                               double time_scale)
    : job_(std::move(job)),
      listener_(listener),
      time_scale_(time_scale),
      outbox_(log, EventOutboxOptions()) {}

void TrainingEvents::AddNotice(const std::string& key, const std::string& kind,
                               const std::string& text) {
  job::v1::Event event;
  event.mutable_notice()->set_kind(kind);
  event.mutable_notice()->set_severity("warning");
  event.mutable_notice()->set_text(text);
  NewEvent notice = JobEvent(key, std::move(event));
  MutexLock lock(mu_);
  notices_.push_back({std::move(notice), false});
}

void TrainingEvents::SendStep(int64_t lineage, const StepMetrics& metrics,
                              const std::vector<SampleRow>& samples) {
  job::v1::Event event;
  event.set_metrics_json(ToJson(metrics));
  // The former process may have reported the step before it died; the key deduplicates it.
  std::vector<OutboxRow> rows = {
      {JobEvent(StrCat("step/", lineage, "/", metrics.step), std::move(event)), false}};
  rows.reserve(1 + samples.size());
  const std::string stream = StrCat("{", job_, "}:samples");
  for (const SampleRow& sample : samples) {
    std::string json = ToJson(sample);
    if (static_cast<int64_t>(json.size()) > kMaxEventBytes) continue;
    rows.push_back({{stream, StrCat(sample.uid, "/", metrics.step), std::move(json)}, true});
  }
  Send(std::move(rows));
}

void TrainingEvents::SendWaiting() {
  {
    MutexLock lock(mu_);
    if (outbox_.waiting() == 0 && notices_.empty()) return;
  }
  Send({});
}

void TrainingEvents::SendLast(std::stop_token stop) {
  Notification never;
  absl::Duration waited;
  Send({});
  for (int64_t tries = 1;
       outbox_.waiting() > 0 && waited < (stop.stop_requested() ? kStoppedRowsWait : kLastRowsWait);
       ++tries) {
    const absl::Duration pause = BackoffDelay(tries, kFirstRowsPause, kMostRowsPause);
    never.WaitFor(pause * time_scale_);
    waited += pause;
    Send({});
  }
  if (outbox_.waiting() > 0) {
    FRESHET_LOG(Warning) << "event=rows_lost rows=" << outbox_.waiting();
  }
}

NewEvent TrainingEvents::JobEvent(const std::string& key, job::v1::Event event) const {
  *event.mutable_time() = ToTimestamp(absl::Now());
  return {StrCat("{", job_, "}:events"), key, event.SerializeAsString()};
}

void TrainingEvents::Send(std::vector<OutboxRow> rows) {
  {
    MutexLock lock(mu_);
    std::move(notices_.begin(), notices_.end(), std::back_inserter(rows));
    notices_.clear();
  }
  const absl::Status sent = outbox_.Send(std::move(rows));
  if (!sent.ok()) {
    FRESHET_LOG(Warning) << "event=rows_wait rows=" << outbox_.waiting()
                         << " error=" << LogQuoted(Message(sent));
  }
  if (listener_ != nullptr) {
    listener_->OnRows(job_, outbox_.waiting(), outbox_.max_rows(), outbox_.dropped());
  }
}

}  // namespace freshet
