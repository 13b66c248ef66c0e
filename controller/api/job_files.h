#ifndef FRESHET_CONTROLLER_API_JOB_FILES_H_
#define FRESHET_CONTROLLER_API_JOB_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/api/stream_sink.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// The files of a job on the disk of its trainer: checkpoints and generated files. Errors of all
// functions: those of the ports, NOT_FOUND for an unknown job, and UNAVAILABLE if the trainer is
// not connected.

// Address of the trainer that holds the job's files. NOT_FOUND: the job has not run yet.
absl::StatusOr<std::string> TrainerAddress(ControllerTerm& term, const JobRecord& record);

// ListCheckpoints of the job API. Empty if the job has not run yet.
absl::StatusOr<job::v1::ListCheckpointsReply> ListJobCheckpoints(
    const Controller& controller, ControllerTerm& term,
    const job::v1::ListCheckpointsRequest& request);

// ExportCheckpoint of the job API: streams a checkpoint, or generated files. Takes at most 4 hours.
absl::Status ExportFiles(const Controller& controller, ControllerTerm& term,
                         const job::v1::ExportCheckpointRequest& request, absl::Time deadline,
                         StreamSink<job::v1::FileChunk>& sink);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_FILES_H_
