// The calls of JobService that a standby forwards to the leader.

#include <atomic>
#include <thread>

#include "tests/controller/api/job_service_fixture.h"
#include "tests/testing/loopback_server.h"

namespace freshet {
namespace {

using testing::ElementsAre;

class StandbyControllerTest : public JobServiceTest {
 protected:
  // Starts a second controller and waits until it knows the leader.
  void StandBy() {
    standby_ = std::make_unique<ServedController>(cluster_, "two");
    ASSERT_TRUE(
        Eventually([&] { return standby_->controller().Leader().address == served_->address(); }));
  }
  std::unique_ptr<ServedController> standby_;
};

// A leader that accepts calls but never answers, like a stopped process.
class HungLeader final : public job::v1::JobService::Service {
 public:
  ~HungLeader() override { released_.Notify(); }
  grpc::Status Pause(grpc::ServerContext* context, const job::v1::PauseRequest*,
                     job::v1::Job*) override {
    return Hang(*context);
  }
  grpc::Status Logs(grpc::ServerContext* context, const job::v1::LogsRequest*,
                    grpc::ServerWriter<job::v1::LogEntry>*) override {
    return Hang(*context);
  }
  std::string address() const { return server_.address(); }
  int calls() const { return calls_; }
  int cancelled() const { return cancelled_; }

 private:
  grpc::Status Hang(grpc::ServerContext& context) {
    ++calls_;
    while (!released_.WaitFor(absl::Milliseconds(5))) {
      if (!context.IsCancelled()) continue;
      ++cancelled_;
      break;
    }
    return grpc::Status::OK;
  }

  Notification released_;
  std::atomic<int> calls_{0};
  std::atomic<int> cancelled_{0};
  const LoopbackServer server_{this};
};

class HungLeaderTest : public JobServiceTest {
 protected:
  HungLeaderTest() {
    EXPECT_TRUE(cluster_.lease.TryAcquire("hung", leader_.address(), absl::Hours(1)).ok());
    standby_ = std::make_unique<ServedController>(cluster_, "two");
    EXPECT_TRUE(
        Eventually([&] { return standby_->controller().Leader().address == leader_.address(); }));
  }
  HungLeader leader_;
  std::unique_ptr<ServedController> standby_;
};

TEST_F(HungLeaderTest, ACallEndsWhenTheStandbyTakesOver) {
  absl::Status status;
  std::thread caller([&] {
    job::v1::PauseRequest pause;
    pause.set_job_id("a");
    job::v1::Job job;
    status = runtime::GrpcToStatus(
        standby_->stub().Pause(runtime::CallWithin(kGuard).get(), pause, &job));
  });
  EXPECT_TRUE(Eventually([&] { return leader_.calls() == 1; }));
  cluster_.clock.Advance(absl::Hours(1));
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(runtime::DetailsOf(status).reason, runtime::kLeaderAwayReason);
  EXPECT_TRUE(Eventually([&] { return leader_.cancelled() == 1; }));
}

TEST_F(HungLeaderTest, AStreamEndsWhenTheStandbyTakesOver) {
  absl::Status status;
  std::thread caller([&] {
    const auto context = runtime::CallWithin(kGuard);
    const auto reader = standby_->stub().Logs(context.get(), job::v1::LogsRequest());
    job::v1::LogEntry entry;
    EXPECT_FALSE(reader->Read(&entry));
    status = runtime::GrpcToStatus(reader->Finish());
  });
  EXPECT_TRUE(Eventually([&] { return leader_.calls() == 1; }));
  cluster_.clock.Advance(absl::Hours(1));
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(runtime::DetailsOf(status).reason, runtime::kLeaderAwayReason);
}

TEST_F(HungLeaderTest, ACallEndsWhenItsCallerIsGone) {
  const auto context = runtime::CallWithin(kGuard);
  std::thread caller([&] {
    job::v1::PauseRequest pause;
    job::v1::Job job;
    EXPECT_EQ(standby_->stub().Pause(context.get(), pause, &job).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(Eventually([&] { return leader_.calls() == 1; }));
  context->TryCancel();
  caller.join();
  EXPECT_TRUE(Eventually([&] { return leader_.cancelled() == 1; }));
}

TEST_F(StandbyControllerTest, PassesCallsOnToTheLeader) {
  Serve();
  StandBy();
  job::v1::SubmitRequest request;
  request.set_job_id("a");
  request.set_yaml(TinyClusterJob());
  job::v1::Job job;
  ASSERT_TRUE(standby_->stub().Submit(runtime::CallWithin(kGuard).get(), request, &job).ok());
  EXPECT_EQ(Get("a").id(), "a");
  const grpc::Status twice =
      standby_->stub().Submit(runtime::CallWithin(kGuard).get(), job::v1::SubmitRequest(), &job);
  EXPECT_EQ(runtime::DetailsOf(runtime::GrpcToStatus(twice)).reason, "INVALID_JOB");
}

TEST_F(StandbyControllerTest, PassesOnTheCheckpointThatTheLeaderSends) {
  Serve();
  Run("a");
  StandBy();
  job::v1::ExportCheckpointRequest wanted;
  wanted.set_job_id("a");
  wanted.set_version(3);
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = standby_->stub().ExportCheckpoint(context.get(), wanted);
  job::v1::FileChunk chunk;
  std::vector<std::string> paths;
  while (reader->Read(&chunk)) paths.push_back(chunk.path());
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(paths, ElementsAre("config.json", "model.safetensors"));
  wanted.set_version(9);
  const auto again = runtime::CallWithin(kGuard);
  const auto missing = standby_->stub().ExportCheckpoint(again.get(), wanted);
  EXPECT_FALSE(missing->Read(&chunk));
  EXPECT_EQ(missing->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StandbyControllerTest, PassesOnLogsUntilTheClientHasEnough) {
  const auto own = [lines = std::make_shared<std::atomic<int>>(0)] {
    std::vector<job::v1::LogEntry> entries;
    if (*lines == 3) return entries;
    job::v1::LogEntry& entry = entries.emplace_back();
    entry.set_role("controller");
    entry.set_worker("one");
    entry.set_text(StrCat("line ", ++*lines));
    return entries;
  };
  Serve({}, own);
  StandBy();
  job::v1::LogsRequest request;
  request.set_role("controller");
  request.set_follow(true);
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = standby_->stub().Logs(context.get(), request);
  job::v1::LogEntry entry;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(reader->Read(&entry));
    EXPECT_EQ(entry.text(), StrCat("line ", i));
    EXPECT_EQ(entry.worker(), "one");
  }
  context->TryCancel();
  reader->Finish();
}

TEST_F(StandbyControllerTest, ShowsAJobAlsoWhenTheLeaderDoesNotAnswer) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  StandBy();
  served_->Unplug();
  job::v1::GetRequest request;
  request.set_job_id("a");
  job::v1::Job job;
  ASSERT_TRUE(standby_->stub().Get(runtime::CallWithin(kGuard).get(), request, &job).ok());
  EXPECT_EQ(job.id(), "a");
  // Calls that need the leader fail with a retriable error.
  job::v1::PauseRequest pause;
  pause.set_job_id("a");
  const absl::Status refused =
      runtime::GrpcToStatus(standby_->stub().Pause(runtime::CallWithin(kGuard).get(), pause, &job));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(runtime::DetailsOf(refused).reason, runtime::kLeaderAwayReason);
  EXPECT_TRUE(runtime::DetailsOf(refused).retry_after.has_value());
}

}  // namespace
}  // namespace freshet
