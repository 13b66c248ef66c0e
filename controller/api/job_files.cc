#include "controller/api/job_files.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr absl::Duration kLongestExport = absl::Hours(4);

job::v1::CheckpointInfo ToCheckpointInfo(const trainer::v1::CheckpointInfo& checkpoint) {
  job::v1::CheckpointInfo info;
  info.set_lineage(checkpoint.lineage());
  info.set_version(checkpoint.version());
  info.set_size_bytes(checkpoint.size_bytes());
  info.set_manifest_sha256(checkpoint.manifest_sha256());
  if (checkpoint.has_accuracy()) info.set_accuracy(checkpoint.accuracy());
  info.set_path(checkpoint.path());
  return info;
}

}  // namespace

absl::StatusOr<std::string> TrainerAddress(ControllerTerm& term, const JobRecord& record) {
  if (record.trainer().empty()) {
    return NotFound("job ", record.id(), " has not run yet: it has no checkpoints");
  }
  for (const Member& member : term.hub->Workers()) {
    if (member.record.name() == record.trainer() && !member.record.lost()) {
      return member.record.address();
    }
  }
  return StatusOf(absl::StatusCode::kUnavailable, "trainer ", record.trainer(),
                  ", which has the files of job ", record.id(), ", is not there");
}

absl::StatusOr<job::v1::ListCheckpointsReply> ListJobCheckpoints(
    const Controller& controller, ControllerTerm& term,
    const job::v1::ListCheckpointsRequest& request) {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, term.registry.Get(request.job_id()));
  if (record.trainer().empty()) return job::v1::ListCheckpointsReply();
  FRESHET_ASSIGN_OR_RETURN(const std::string address, TrainerAddress(term, record));
  FRESHET_ASSIGN_OR_RETURN(const trainer::v1::ListCheckpointsReply found,
                           controller.ports().trainers.ListCheckpoints(
                               address, record.id(), controller.options().timing.call_deadline));
  job::v1::ListCheckpointsReply reply;
  for (const trainer::v1::CheckpointInfo& checkpoint : found.checkpoints()) {
    *reply.add_checkpoints() = ToCheckpointInfo(checkpoint);
  }
  return reply;
}

absl::Status ExportFiles(const Controller& controller, ControllerTerm& term,
                         const job::v1::ExportCheckpointRequest& request, absl::Time deadline,
                         StreamSink<job::v1::FileChunk>& sink) {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, term.registry.Get(request.job_id()));
  FRESHET_ASSIGN_OR_RETURN(const std::string address, TrainerAddress(term, record));
  trainer::v1::ExportCheckpointRequest wanted;
  wanted.set_job_id(request.job_id());
  wanted.set_version(request.version());
  if (request.has_generated_after()) wanted.set_generated_after(request.generated_after());
  return controller.ports().trainers.ExportCheckpoint(
      address, wanted, std::min(kLongestExport, deadline - absl::Now()),
      [&sink](const trainer::v1::CheckpointChunk& chunk) {
        job::v1::FileChunk out;
        out.set_path(chunk.path());
        out.set_data(chunk.data());
        return sink.Write(out) ? absl::OkStatus() : ClientIsGone();
      });
}

}  // namespace freshet
