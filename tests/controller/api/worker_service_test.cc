// Which certificates may register which role: WorkerService over mutual TLS.
#include "controller/api/worker_service.h"

#include <memory>
#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/channel.h"
#include "services/runtime/server.h"
#include "services/runtime/status.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"
#include "tests/services/runtime/certificates.h"

namespace freshet {
namespace {

using testing::HasSubstr;

class WorkerServiceTest : public testing::Test {
 protected:
  static constexpr absl::Duration kGuard = absl::Seconds(20);

  void SetUp() override {
    certs_.MakeAuthority("ca");
    certs_.Make("controller", "ca", "IP:127.0.0.1,DNS:freshet-controller.rl.svc");
    certs_.Make("rollout", "ca", "DNS:freshet-rollout.rl.svc");
    certs_.Make("all", "ca", "DNS:*.rl.svc");
    controller_ = cluster_.MakeController("one");
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(absl::Now());
    controller_->Stop();
    if (service_ != nullptr) service_->Stop();
  }
  // Serves with `member_name` as the template of member names.
  void Serve(const std::string& member_name) {
    service_ = std::make_unique<WorkerServiceImpl>(*controller_, member_name);
    runtime::EndpointOptions options;
    options.tls = certs_.Files("controller", "ca");
    auto server = runtime::Server::Start(options, {service_.get()}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    controller_->Start(server_->address());
    ASSERT_TRUE(Eventually([this] { return controller_->Active() != nullptr; }));
  }
  absl::Status Register(const std::string& certificate, cluster::v1::Role role) {
    runtime::ChannelOptions options;
    options.tls.files = certs_.Files(certificate, "ca");
    const auto channel = runtime::MakeChannel(server_->address(), options);
    if (!channel.ok()) return channel.status();
    cluster::v1::RegisterRequest request;
    request.set_role(role);
    request.set_worker(StrCat("w", static_cast<int>(role)));
    request.set_address("127.0.0.1:1");
    request.set_incarnation(certificate);
    cluster::v1::RegisterReply reply;
    return runtime::GrpcToStatus(cluster::v1::WorkerService::NewStub(*channel)->Register(
        runtime::CallWithin(kGuard).get(), request, &reply));
  }

  Certificates certs_;
  FakeCluster cluster_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<WorkerServiceImpl> service_;
  std::unique_ptr<runtime::Server> server_;
};

TEST_F(WorkerServiceTest, AWorkerRegistersAsWhatItsCertificateSays) {
  Serve("freshet-{role}.rl.svc");
  const absl::Status good = Register("rollout", cluster::v1::ROLE_ROLLOUT);
  EXPECT_TRUE(good.ok()) << good;
  const absl::Status refused = Register("rollout", cluster::v1::ROLE_TRAINER);
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("freshet-trainer.rl.svc"));
  // A certificate for all roles may register any role.
  EXPECT_TRUE(Register("all", cluster::v1::ROLE_TRAINER).ok());
}

TEST_F(WorkerServiceTest, WithoutANameOfMembersEveryRoleIsTaken) {
  Serve("");
  EXPECT_TRUE(Register("rollout", cluster::v1::ROLE_TRAINER).ok());
}

}  // namespace
}  // namespace freshet
