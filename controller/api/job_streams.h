#ifndef FRESHET_CONTROLLER_API_JOB_STREAMS_H_
#define FRESHET_CONTROLLER_API_JOB_STREAMS_H_

#include "absl/status/status.h"
#include "controller/api/stream_sink.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// What a job records, as streams of the job API. Each function returns the status of its stream:
// the errors of the ports, NOT_FOUND for an unknown job, INVALID_ARGUMENT naming a field of the
// request, and ClientIsGone if the call ends before the stream does.

// Watch, on any controller. OUT_OF_RANGE: events after the cursor have expired.
absl::Status SendEvents(const Controller& controller, const job::v1::WatchRequest& request,
                        StreamSink<job::v1::Event>& sink);

// ReadLedger, on any controller.
absl::Status SendLedger(const Controller& controller, const job::v1::ReadLedgerRequest& request,
                        StreamSink<job::v1::LedgerChunk>& sink);

// Logs, in the current term. NotLeading if the term ends.
absl::Status SendLogs(const Controller& controller, ControllerTerm& term,
                      const job::v1::LogsRequest& request, StreamSink<job::v1::LogEntry>& sink);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_STREAMS_H_
