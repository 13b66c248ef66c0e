#ifndef FRESHET_TRAINER_SERVICE_TRAINER_SERVICE_H_
#define FRESHET_TRAINER_SERVICE_TRAINER_SERVICE_H_

#include <string>

#include "freshet/trainer/v1/trainer_service.grpc.pb.h"
#include "services/runtime/executor.h"
#include "trainer/service/learner_factory.h"

namespace freshet {

// TrainerService for the checkpoints in one state folder. Thread-safe.
class GrpcTrainerService final : public trainer::v1::TrainerService::CallbackService {
 public:
  // `learners` must outlive the service. Files that jobs name are opened below `roots`.
  GrpcTrainerService(LearnerFactory& learners, std::string state_dir, DataRoots roots);

  grpc::ServerUnaryReactor* DescribeModel(grpc::CallbackServerContext* context,
                                          const trainer::v1::DescribeModelRequest* request,
                                          trainer::v1::ModelBundle* reply) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const trainer::v1::ListCheckpointsRequest* request,
                                            trainer::v1::ListCheckpointsReply* reply) override;
  grpc::ServerWriteReactor<trainer::v1::CheckpointChunk>* ExportCheckpoint(
      grpc::CallbackServerContext* context,
      const trainer::v1::ExportCheckpointRequest* request) override;
  grpc::ServerUnaryReactor* DeleteJobFiles(grpc::CallbackServerContext* context,
                                           const trainer::v1::DeleteJobFilesRequest* request,
                                           trainer::v1::DeleteJobFilesReply* reply) override;

  // Calls that wait for a thread, at most kMaxQueue.
  static constexpr size_t kMaxQueue = 64;
  size_t queued_calls() const { return calls_.queued(); }

 private:
  LearnerFactory& learners_;
  const std::string state_dir_;
  const DataRoots roots_;
  runtime::Executor calls_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINER_SERVICE_H_
