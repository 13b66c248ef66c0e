#ifndef FRESHET_TESTS_CLI_FAKE_JOB_SERVICE_H_
#define FRESHET_TESTS_CLI_FAKE_JOB_SERVICE_H_

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "freshet/job/v1/job_service.grpc.pb.h"
#include "tests/testing/loopback_server.h"

namespace freshet {

// An in-memory JobService in the test process. A submitted job completes at once with the events
// set by the test, or else `steps` steps and an end. Thread-safe.
class FakeJobService final : public job::v1::JobService::Service {
 public:
  ~FakeJobService() override { stop_.Notify(); }

  std::string address() const { return server_.address(); }

  // Adds a job; Watch returns `events`.
  void AddJob(const job::v1::Job& job, const std::vector<job::v1::Event>& events)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The next call of `method` ("": of any method) returns `status`. Repeated calls queue up.
  void FailNext(const std::string& method, absl::Status status) ABSL_LOCKS_EXCLUDED(mu_);
  // Watch fails with UNAVAILABLE after this many events. 0: never.
  void BreakWatchAfter(int events) ABSL_LOCKS_EXCLUDED(mu_);
  // Watch sends its events and then stays open until the client cancels.
  void HoldWatch() ABSL_LOCKS_EXCLUDED(mu_);
  std::map<std::string, int> calls() const ABSL_LOCKS_EXCLUDED(mu_);
  job::v1::SubmitRequest last_submit() const ABSL_LOCKS_EXCLUDED(mu_);
  job::v1::ScaleRequest last_scale() const ABSL_LOCKS_EXCLUDED(mu_);
  job::v1::ResumeRequest last_resume() const ABSL_LOCKS_EXCLUDED(mu_);
  // The `authorization` header of the last List.
  std::string last_authorization() const ABSL_LOCKS_EXCLUDED(mu_);
  void SetCheckpoint(std::vector<job::v1::FileChunk> chunks) ABSL_LOCKS_EXCLUDED(mu_);
  // The generated files of steps up to `last`.
  void SetGenerated(int64_t last, std::vector<job::v1::FileChunk> chunks) ABSL_LOCKS_EXCLUDED(mu_);
  void SetLedger(std::vector<std::string> rows) ABSL_LOCKS_EXCLUDED(mu_);
  void SetSamples(std::vector<std::string> rows) ABSL_LOCKS_EXCLUDED(mu_);
  void SetLogs(std::vector<job::v1::LogEntry> entries) ABSL_LOCKS_EXCLUDED(mu_);
  void SetCluster(job::v1::Cluster cluster) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  template <typename T>
  using Writer = grpc::ServerWriter<T>;
  using Context = grpc::ServerContext;

  struct Entry {
    job::v1::Job job;
    std::vector<job::v1::Event> events;
  };

  grpc::Status Submit(Context*, const job::v1::SubmitRequest*, job::v1::Job*) override;
  grpc::Status Validate(Context*, const job::v1::ValidateRequest*,
                        job::v1::ValidateReply*) override;
  grpc::Status Get(Context*, const job::v1::GetRequest*, job::v1::Job*) override;
  grpc::Status List(Context*, const job::v1::ListRequest*, job::v1::ListReply*) override;
  grpc::Status Watch(Context*, const job::v1::WatchRequest*, Writer<job::v1::Event>*) override;
  grpc::Status Pause(Context*, const job::v1::PauseRequest*, job::v1::Job*) override;
  grpc::Status Resume(Context*, const job::v1::ResumeRequest*, job::v1::Job*) override;
  grpc::Status Cancel(Context*, const job::v1::CancelRequest*, job::v1::Job*) override;
  grpc::Status Delete(Context*, const job::v1::DeleteRequest*, job::v1::DeleteReply*) override;
  grpc::Status Scale(Context*, const job::v1::ScaleRequest*, job::v1::ScaleReply*) override;
  grpc::Status ListCheckpoints(Context*, const job::v1::ListCheckpointsRequest*,
                               job::v1::ListCheckpointsReply*) override;
  grpc::Status ExportCheckpoint(Context*, const job::v1::ExportCheckpointRequest*,
                                Writer<job::v1::FileChunk>*) override;
  grpc::Status ListSamples(Context*, const job::v1::ListSamplesRequest*,
                           job::v1::ListSamplesReply*) override;
  grpc::Status ReadLedger(Context*, const job::v1::ReadLedgerRequest*,
                          Writer<job::v1::LedgerChunk>*) override;
  grpc::Status Logs(Context*, const job::v1::LogsRequest*, Writer<job::v1::LogEntry>*) override;
  grpc::Status GetCluster(Context*, const job::v1::GetClusterRequest*, job::v1::Cluster*) override;

  // Counts the call and returns its queued failure, if any.
  absl::Status Begin(const std::string& method) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  grpc::Status SetState(const std::string& method, const std::string& id, job::v1::JobState state,
                        const std::string& reason, job::v1::Job* job) ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  std::map<std::string, Entry> jobs_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<std::string, absl::Status>> failures_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mu_);
  int break_after_ ABSL_GUARDED_BY(mu_) = 0;
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  job::v1::SubmitRequest last_submit_ ABSL_GUARDED_BY(mu_);
  job::v1::ScaleRequest last_scale_ ABSL_GUARDED_BY(mu_);
  job::v1::ResumeRequest last_resume_ ABSL_GUARDED_BY(mu_);
  std::string last_authorization_ ABSL_GUARDED_BY(mu_);
  std::vector<job::v1::FileChunk> checkpoint_ ABSL_GUARDED_BY(mu_);
  std::vector<job::v1::FileChunk> generated_ ABSL_GUARDED_BY(mu_);
  int64_t last_generated_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> ledger_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> samples_ ABSL_GUARDED_BY(mu_);
  std::vector<job::v1::LogEntry> logs_ ABSL_GUARDED_BY(mu_);
  job::v1::Cluster cluster_ ABSL_GUARDED_BY(mu_);
  Notification stop_;
  const LoopbackServer server_{this};
};

// Events with cursors "1", "2", ...: RUNNING, steps 1..steps with growing reward, the end state.
std::vector<job::v1::Event> EventsOfRun(int64_t steps, job::v1::JobState end,
                                        const std::string& reason = "");
// A job that ended in `state`.
job::v1::Job EndedJob(const std::string& id, job::v1::JobState state,
                      const std::string& reason = "");

}  // namespace freshet

#endif  // FRESHET_TESTS_CLI_FAKE_JOB_SERVICE_H_
