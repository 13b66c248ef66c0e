#ifndef FRESHET_TRAINER_SERVICE_TRAINING_EVENTS_H_
#define FRESHET_TRAINER_SERVICE_TRAINING_EVENTS_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "datastore/event_log.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/samples_log.h"
#include "runlog/step_metrics.h"
#include "trainer/service/event_outbox.h"
#include "trainer/service/training_listener.h"

namespace freshet {

// Sends the metrics, samples and notices of one job's training to its event streams. While the
// datastore is unreachable they wait (EventOutbox). Failing to send does not stop training.
// AddNotice is thread-safe; only one thread at a time may call the other methods.
class TrainingEvents {
 public:
  // `log` and `listener` must outlive this object; `listener` may be null and learns how many rows
  // wait. `time_scale`: of the waits in SendLast.
  TrainingEvents(EventLog& log, std::string job, TrainingListener* listener, double time_scale);

  // Adds a warning, which the next call of a method below sends. The key deduplicates it.
  void AddNotice(const std::string& key, const std::string& kind, const std::string& text)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Sends the metrics and samples of a finished step, and all that waits. A sample above the size
  // of an event is left out.
  void SendStep(int64_t lineage, const StepMetrics& metrics, const std::vector<SampleRow>& samples);
  // Sends what waits, if anything does.
  void SendWaiting() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends what waits, and waits a bounded time for the datastore: less once `stop` is requested.
  void SendLast(std::stop_token stop);

 private:
  NewEvent JobEvent(const std::string& key, job::v1::Event event) const;
  // Sends the rows that wait, these, and the notices.
  void Send(std::vector<OutboxRow> rows) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string job_;
  TrainingListener* const listener_;
  const double time_scale_;
  EventOutbox outbox_;
  Mutex mu_;
  std::vector<OutboxRow> notices_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINING_EVENTS_H_
