#include "services/runtime/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "services/runtime/channel.h"
#include "services/runtime/client_stream.h"
#include "services/runtime/error_details.h"
#include "tests/model/test_directory.h"
#include "tests/services/runtime/echo_service.h"
#include "tests/services/runtime/health_client.h"

namespace freshet::runtime {
namespace {

using ::testing::HasSubstr;
constexpr absl::Duration kGuard = absl::Seconds(10);

// A server with the echo service on loopback and a stub to it.
class ServerTest : public ::testing::Test {
 protected:
  void Start(EchoService::Handler handler, EndpointOptions options = {}) {
    service_ = std::make_unique<EchoService>(std::move(handler));
    auto server = Server::Start(options, {service_.get()}, registry_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const auto channel = MakeChannel(server_->address(), {});
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
    stub_ = env::v1::EnvService::NewStub(channel_);
  }
  absl::Status Call(absl::Duration timeout = kGuard) {
    env::v1::ListEnvironmentsReply reply;
    return GrpcToStatus(stub_->ListEnvironments(CallWithin(timeout).get(), {}, &reply));
  }
  std::string Metrics() { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<EchoService> service_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<env::v1::EnvService::Stub> stub_;
};

TEST_F(ServerTest, CarriesDetailsOfErrorsToTheClient) {
  const absl::Status error =
      WithDetails(absl::UnavailableError("stands by"), {.reason = kNotLeaderReason,
                                                        .metadata = {{kLeaderMetadata, "h:1"}},
                                                        .retry_after = absl::Seconds(1)});
  Start([&](const CallContext&) { return error; });
  EXPECT_EQ(Call(), error);
}

TEST_F(ServerTest, TurnsExceptionsIntoInternal) {
  Start([](const CallContext&) -> absl::StatusOr<EchoService::Reply> {
    throw std::runtime_error("a library's");
  });
  const absl::Status status = Call();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a library's"));
}

TEST_F(ServerTest, TellsAMethodItsDeadlineAndItsCancellation) {
  Notification cancelled;
  absl::Time deadline;
  Start([&](const CallContext& call) {
    deadline = call.deadline;
    for (int i = 0; i < 2000 && !call.cancelled(); ++i) {
      Notification().WaitFor(absl::Milliseconds(5));
    }
    if (call.cancelled()) cancelled.Notify();
    return EchoService::Reply();
  });
  // Connect first, so that the call reaches the server within its deadline.
  ASSERT_TRUE(
      channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)));
  const absl::Time before = absl::Now();
  EXPECT_EQ(Call(absl::Seconds(1)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(cancelled.WaitFor(kGuard));
  EXPECT_LT(deadline, before + kGuard);
  service_->Stop();
}

TEST_F(ServerTest, RefusesCallsThatItsExecutorCannotTake) {
  Notification go;
  Notification both_busy;
  std::atomic<int> running{0};
  Start([&](const CallContext&) {
    if (++running == 2) both_busy.Notify();
    go.WaitFor(kGuard);
    return EchoService::Reply();
  });
  // 2 threads and 4 queue slots: with both threads busy, 4 of 8 more calls are refused.
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  std::atomic<int> done{0};
  const auto call = [&] {
    const absl::Status status = Call();
    if (absl::IsResourceExhausted(status) && ++refused == 4) go.Notify();
    if (status.ok()) ++done;
  };
  for (int i = 0; i < 2; ++i) threads.emplace_back(call);
  ASSERT_TRUE(both_busy.WaitFor(kGuard));
  for (int i = 0; i < 8; ++i) threads.emplace_back(call);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(done, 6);
}

TEST_F(ServerTest, CountsCallsByMethodAndCode) {
  Start([n = 0](const CallContext&) mutable -> absl::StatusOr<EchoService::Reply> {
    if (n++ == 0) return EchoService::Reply();
    return absl::NotFoundError("x");
  });
  EXPECT_TRUE(Call().ok());
  EXPECT_TRUE(absl::IsNotFound(Call()));
  const std::string metrics = Metrics();
  const char* kLabels =
      "grpc_method=\"ListEnvironments\",grpc_service=\"freshet.env.v1.EnvService\"";
  for (const char* code : {"OK", "NotFound"}) {
    EXPECT_THAT(metrics, HasSubstr(StrCat("freshet_grpc_server_handled_total{grpc_code=\"", code,
                                          "\",", kLabels, "} 1")));
  }
  EXPECT_THAT(metrics,
              HasSubstr(StrCat("freshet_grpc_server_handling_seconds_count{", kLabels, "} 2")));
}

TEST_F(ServerTest, BoundsMessages) {
  EndpointOptions options;
  options.max_message_bytes = 1 << 16;
  Start([](const CallContext&) { return EchoService::Reply(); }, options);
  auto stream = ClientStream<env::v1::EpisodeRequest, env::v1::EpisodeReply>::Start(
      CallWithin(kGuard), [&](auto* c, auto* r) { stub_->async()->Episode(c, r); });
  env::v1::EpisodeRequest request;
  request.mutable_step()->set_action(std::string(1 << 17, 'x'));
  stream->Write(request, kGuard).IgnoreError();
  EXPECT_EQ(stream->Read(kGuard).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ServerTest, AnswersHealthForEveryService) {
  Start([](const CallContext&) { return EchoService::Reply(); });
  HealthClient health(channel_);
  EXPECT_EQ(health.Check(""), HealthClient::kNotServing);
  EXPECT_EQ(health.Check("freshet.env.v1.EnvService"), HealthClient::kNotServing);
  server_->SetServing(true);
  EXPECT_EQ(health.Check(""), HealthClient::kServing);
  EXPECT_EQ(health.Check("freshet.env.v1.EnvService"), HealthClient::kServing);
  server_->SetServing("freshet.env.v1.EnvService", false);
  EXPECT_EQ(health.Check("freshet.env.v1.EnvService"), HealthClient::kNotServing);
  EXPECT_EQ(health.Check(""), HealthClient::kServing);
  EXPECT_EQ(health.Check("no.such.Service"), HealthClient::kUnknown);
}

TEST_F(ServerTest, ServesReflectionOnlyWhenAsked) {
  const auto reflects = [&] {
    grpc::GenericStub stub(channel_);
    grpc::ByteBuffer request(nullptr, 0);
    grpc::ByteBuffer reply;
    Notification done;
    grpc::Status result;
    const auto context = CallWithin(kGuard);
    stub.UnaryCall(context.get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                   {}, &request, &reply, [&](grpc::Status status) {
                     result = std::move(status);
                     done.Notify();
                   });
    EXPECT_TRUE(done.WaitFor(kGuard));
    return result.error_code() != grpc::StatusCode::UNIMPLEMENTED;
  };
  EndpointOptions options;
  options.reflection = true;
  Start([](const CallContext&) { return EchoService::Reply(); }, options);
  EXPECT_TRUE(reflects());
  Start([](const CallContext&) { return EchoService::Reply(); });
  EXPECT_FALSE(reflects());
}

TEST_F(ServerTest, NamesAnAddressThatIsTaken) {
  Start([](const CallContext&) { return EchoService::Reply(); });
  EndpointOptions options;
  options.listen = server_->address();
  const auto second = Server::Start(options, {}, nullptr);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address()));
}

TEST_F(ServerTest, CancelsWhatRunsAtTheShutdownDeadline) {
  Start([](const CallContext&) { return EchoService::Reply(); });
  auto stream = ClientStream<env::v1::EpisodeRequest, env::v1::EpisodeReply>::Start(
      CallWithin(kGuard), [&](auto* c, auto* r) { stub_->async()->Episode(c, r); });
  env::v1::EpisodeRequest request;
  request.mutable_step()->set_action("a");
  ASSERT_TRUE(stream->Write(request, kGuard).ok());
  ASSERT_TRUE(stream->Read(kGuard).ok());
  server_->Shutdown(absl::Now() + absl::Milliseconds(50));
  server_->Shutdown(absl::Now());
  const absl::Status status = stream->Read(kGuard).status();
  EXPECT_TRUE(absl::IsCancelled(status) || absl::IsUnavailable(status)) << status;
}

TEST(AdvertisedAddress, TakesThePortThatWasBound) {
  EXPECT_EQ(AdvertisedAddress("", "127.0.0.1:5"), "127.0.0.1:5");
  EXPECT_EQ(AdvertisedAddress("node", "0.0.0.0:5"), "node:5");
  EXPECT_EQ(AdvertisedAddress("node:7", "0.0.0.0:5"), "node:7");
  EXPECT_THAT(AdvertisedAddress("", "0.0.0.0:5"), ::testing::EndsWith(":5"));
  EXPECT_THAT(AdvertisedAddress("", "0.0.0.0:5"), ::testing::Not(HasSubstr("0.0.0.0")));
}

TEST(Channel, RefusesBadOptions) {
  EXPECT_EQ(MakeChannel("nowhere", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeChannel("h:0", {}).status().code(), absl::StatusCode::kInvalidArgument);
  ChannelOptions token;
  token.bearer_token = "s3cret-token";
  const absl::Status refused = MakeChannel("127.0.0.1:1", token).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), ::testing::Not(HasSubstr("s3cret")));
  ChannelOptions pings;
  pings.keepalive_time = absl::Milliseconds(10);
  EXPECT_EQ(MakeChannel("127.0.0.1:1", pings).status().code(), absl::StatusCode::kInvalidArgument);
  ChannelOptions missing;
  missing.tls.files.ca = "/no/such/ca.pem";
  EXPECT_EQ(MakeChannel("127.0.0.1:1", missing).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ServerTest, OnlyCallersWithTheClustersTokenAreLetIn) {
  const TestDirectory folder;
  EndpointOptions options;
  options.cluster_token_file = folder.Write("token", "s3cret\n");
  Start([](const CallContext&) { return EchoService::Reply(); }, options);
  const auto call_with = [&](const ChannelOptions& channel) {
    stub_ = env::v1::EnvService::NewStub(*MakeChannel(server_->address(), channel));
    return Call();
  };
  const absl::Status refused = call_with({});
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Message(refused), HasSubstr("--cluster-token-file"));
  ChannelOptions other;
  other.cluster_token_file = folder.Write("other", "another\n");
  EXPECT_EQ(call_with(other).code(), absl::StatusCode::kUnauthenticated);
  // Members send the token to each other, but never to addresses named by jobs.
  const ChannelOptions member = ChannelOptionsOf(options);
  EXPECT_EQ(call_with(member).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(call_with(ForMember(member, "rollout")).ok());
  // As the Python client does: plaintext with a header.
  stub_ = env::v1::EnvService::NewStub(*MakeChannel(server_->address(), {}));
  const auto context = CallWithin(kGuard);
  context->AddMetadata("authorization", "Bearer s3cret");
  env::v1::ListEnvironmentsReply reply;
  EXPECT_TRUE(GrpcToStatus(stub_->ListEnvironments(context.get(), {}, &reply)).ok());
}

TEST(Channel, SendsAClustersTokenToNoOtherMachine) {
  const TestDirectory folder;
  ChannelOptions options;
  options.cluster_token_file = folder.Write("token", "s3cret\n");
  EXPECT_TRUE(MakeChannel("127.0.0.1:1", options).ok());
  EXPECT_EQ(MakeChannel("192.0.2.1:1", options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerTest, RetriesOnlyIdempotentMethods) {
  std::atomic<int> calls{0};
  Start([&](const CallContext&) -> absl::StatusOr<EchoService::Reply> {
    if (++calls % 3 != 0) return absl::UnavailableError("try again");
    return EchoService::Reply();
  });
  EXPECT_TRUE(absl::IsUnavailable(Call()));
  EXPECT_EQ(calls, 1);
  calls = 0;
  ChannelOptions options;
  options.idempotent_methods = {"freshet.env.v1.EnvService/ListEnvironments"};
  stub_ = env::v1::EnvService::NewStub(*MakeChannel(server_->address(), options));
  EXPECT_TRUE(Call().ok());
  EXPECT_EQ(calls, 3);
}

TEST(BearerToken, IsReadFromAFileOrTheEnvironment) {
  const std::string path = ::testing::TempDir() + "/freshet_token";
  ASSERT_TRUE(WriteFileAtomically(path, "abc123\nsecond line\n").ok());
  EXPECT_EQ(*ReadBearerToken(path, nullptr), "abc123");
  ASSERT_TRUE(WriteFileAtomically(path, "\n").ok());
  EXPECT_EQ(ReadBearerToken(path, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadBearerToken("/no/such", nullptr).status().code(), absl::StatusCode::kNotFound);
  ::setenv("FRESHET_TEST_TOKEN", "from env", 1);
  const absl::Status bad = ReadBearerToken("", "FRESHET_TEST_TOKEN").status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), ::testing::Not(HasSubstr("from env")));
  ::setenv("FRESHET_TEST_TOKEN", "fromenv", 1);
  EXPECT_EQ(*ReadBearerToken("", "FRESHET_TEST_TOKEN"), "fromenv");
  ::unsetenv("FRESHET_TEST_TOKEN");
  EXPECT_EQ(*ReadBearerToken("", "FRESHET_TEST_TOKEN"), "");
}

}  // namespace
}  // namespace freshet::runtime
