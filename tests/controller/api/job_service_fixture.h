#ifndef FRESHET_TESTS_CONTROLLER_API_JOB_SERVICE_FIXTURE_H_
#define FRESHET_TESTS_CONTROLLER_API_JOB_SERVICE_FIXTURE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "controller/api/controller_status.h"
#include "controller/api/external_scaler.h"
#include "controller/api/job_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/channel.h"
#include "services/runtime/error_details.h"
#include "services/runtime/status.h"
#include "services/worker/channel_cache.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"

namespace freshet {

// One controller of an in-memory cluster, with its JobService on its own port.
class ServedController {
 public:
  ServedController(FakeCluster& cluster, const std::string& name, JobServiceOptions options = {},
                   OwnLog own_log = {}) {
    options.random = [] {
      static std::atomic<uint64_t> next{1};
      return next++ * 0x9E3779B97F4A7C15ULL;
    };
    controller_ = cluster.MakeController(name, std::move(own_log));
    service_ = std::make_unique<JobServiceImpl>(*controller_, channels_, options);
    status_ = std::make_unique<ControllerStatus>(*controller_, channels_);
    scaler_ = std::make_unique<ExternalScalerImpl>(*controller_, *status_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    builder.RegisterService(scaler_.get());
    server_ = builder.BuildAndStart();
    address_ = StrCat("127.0.0.1:", port);
    stub_ = job::v1::JobService::NewStub(*runtime::MakeChannel(address_, {}));
    controller_->Start(address_);
  }
  ~ServedController() {
    Unplug();
    controller_->Stop();
    service_->Stop();
    scaler_->Stop();
  }

  // Stops serving. The controller keeps its leader lease.
  void Unplug() { server_->Shutdown(std::chrono::system_clock::now()); }
  bool AwaitLead() {
    return Eventually([this] { return controller_->Active() != nullptr; });
  }
  Controller& controller() { return *controller_; }
  ExternalScalerImpl& scaler() { return *scaler_; }
  job::v1::JobService::Stub& stub() { return *stub_; }
  const std::string& address() const { return address_; }

 private:
  runtime::ChannelCache channels_{runtime::ChannelOptions{}};
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<JobServiceImpl> service_;
  std::unique_ptr<ControllerStatus> status_;
  std::unique_ptr<ExternalScalerImpl> scaler_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<job::v1::JobService::Stub> stub_;
};

// Calls the JobService of a leading controller over gRPC.
class JobServiceTest : public testing::Test {
 protected:
  using Stub = job::v1::JobService::Stub;
  static constexpr absl::Duration kGuard = absl::Seconds(20);

  void Serve(JobServiceOptions options = {}, OwnLog own_log = {}) {
    served_ =
        std::make_unique<ServedController>(cluster_, "one", std::move(options), std::move(own_log));
    ASSERT_TRUE(served_->AwaitLead());
  }
  Stub& stub() { return served_->stub(); }

  // Makes a unary call and returns its status with details.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response) {
    const auto context = runtime::CallWithin(kGuard);
    return runtime::GrpcToStatus((stub().*method)(context.get(), request, &response));
  }
  absl::Status Submit(const std::string& id, const std::string& yaml = TinyClusterJob(),
                      int32_t priority = 0) {
    job::v1::SubmitRequest request;
    request.set_job_id(id);
    request.set_yaml(yaml);
    request.set_priority(priority);
    return Call(&Stub::Submit, request, job_);
  }
  job::v1::Job Get(const std::string& id) {
    job::v1::GetRequest request;
    request.set_job_id(id);
    job::v1::Job job;
    EXPECT_TRUE(Call(&Stub::Get, request, job).ok());
    return job;
  }
  absl::StatusOr<job::v1::ListReply> List(const job::v1::ListRequest& request = {}) {
    job::v1::ListReply reply;
    const absl::Status status = Call(&Stub::List, request, reply);
    if (!status.ok()) return status;
    return reply;
  }
  absl::Status Cancel(const std::string& id, const std::string& reason = "") {
    job::v1::CancelRequest request;
    request.set_job_id(id);
    request.set_reason(reason);
    return Call(&Stub::Cancel, request, job_);
  }
  absl::Status Delete(const std::string& id) {
    job::v1::DeleteRequest request;
    request.set_job_id(id);
    job::v1::DeleteReply reply;
    return Call(&Stub::Delete, request, reply);
  }
  // The field names in the error's details.
  static std::vector<std::string> Fields(const absl::Status& status) {
    std::vector<std::string> fields;
    for (const auto& violation : runtime::DetailsOf(status).violations) {
      fields.push_back(violation.field);
    }
    return fields;
  }

  // Registers the cluster's first workers and runs a job on them.
  void Run(const std::string& id) {
    const auto term = served_->controller().Active();
    for (HubWorker* worker : {&trainer_, &rollout_, &reward_}) {
      ASSERT_TRUE(worker->Register(*term->hub).ok());
    }
    ASSERT_TRUE(Submit(id).ok());
    ASSERT_TRUE(Eventually([&] {
      return trainer_.Work() != "" && rollout_.Work() != "" && reward_.Work() != "";
    })) << Get(id).DebugString();
    Beat();
    ASSERT_TRUE(Becomes(id, job::v1::JOB_STATE_RUNNING));
  }
  void Beat() {
    for (HubWorker* worker : {&trainer_, &rollout_, &reward_}) worker->Beat().IgnoreError();
  }
  testing::AssertionResult Becomes(const std::string& id, job::v1::JobState state) {
    if (Eventually([&] { return Get(id).state() == state; })) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "job is " << Get(id).ShortDebugString();
  }

  FakeCluster cluster_;
  std::unique_ptr<ServedController> served_;
  job::v1::Job job_;  // of the last call that returned one
  HubWorker trainer_{cluster::v1::ROLE_TRAINER, "t0"};
  HubWorker rollout_{cluster::v1::ROLE_ROLLOUT, "r0"};
  HubWorker reward_{cluster::v1::ROLE_REWARD, "w0"};
};

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTROLLER_API_JOB_SERVICE_FIXTURE_H_
