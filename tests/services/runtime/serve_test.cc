#include "services/runtime/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/file.h"
#include "services/runtime/channel.h"
#include "services/runtime/http_client.h"
#include "services/runtime/server.h"
#include "services/runtime/status.h"
#include "tests/services/runtime/certificates.h"
#include "tests/services/runtime/echo_service.h"
#include "tests/services/runtime/health_client.h"
#include "tests/testing/child_process.h"
#include "tests/testing/metrics_text.h"

namespace freshet::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
constexpr absl::Duration kGuard = absl::Seconds(10);

// A role whose drain ends when the test releases it.
class HeldRole final : public Role {
 public:
  std::vector<grpc::Service*> Services() override { return {&service_}; }
  absl::Status Start(const RoleContext& context) override {
    context_ = context;
    context_.readiness->Set("weights", false, "no version yet");
    started.Notify();
    return absl::OkStatus();
  }
  absl::Status Drain(absl::Time deadline) override {
    drain_left = deadline - absl::Now();
    draining.Notify();
    go.WaitFor(kGuard);
    return absl::OkStatus();
  }
  void Stop() override {
    service_.Stop();
    ++stops;
  }
  const RoleContext& context() const { return context_; }
  HttpResponse Get(const std::string& path) const {
    return HttpGet(context_.http_address, path, kGuard);
  }

  Notification started;
  Notification draining;
  Notification go;
  absl::Duration drain_left;
  int stops = 0;

 private:
  EchoService service_;
  RoleContext context_;
};

class ServeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.role = "held";
    options_.version = "1.2.3";
    options_.registry = std::make_shared<prometheus::Registry>();
    prometheus::Gauge& scrapes = prometheus::BuildGauge()
                                     .Name("freshet_test_scrapes")
                                     .Help("Scrapes.")
                                     .Register(*options_.registry)
                                     .Add({});
    options_.before_scrape = [&scrapes] { scrapes.Increment(); };
    options_.endpoint.advertise = "127.0.0.1";
    options_.endpoint.drain_timeout = absl::Seconds(7);
    thread_ = std::thread([this] { code_ = Serve(role_, options_); });
    ASSERT_TRUE(role_.started.WaitFor(kGuard));
  }
  void TearDown() override {
    role_.go.Notify();
    if (thread_.joinable()) {
      role_.context().request_drain(absl::OkStatus());
      thread_.join();
    }
  }
  int Join() {
    thread_.join();
    return code_;
  }
  int Health() { return HealthClient(*MakeChannel(role_.context().grpc_address, {})).Check(""); }
  HttpResponse Get(const std::string& path) { return role_.Get(path); }
  // Waits until the body of /readyz is `wanted` (it is set just after Start returns); returns the
  // status.
  int Readyz(const std::string& wanted) {
    HttpResponse answer;
    const absl::Time deadline = absl::Now() + kGuard;
    do {
      answer = Get("/readyz");
    } while (answer.body != wanted && absl::Now() < deadline);
    EXPECT_EQ(answer.body, wanted);
    return answer.status;
  }

  HeldRole role_;
  ServeOptions options_;
  std::thread thread_;
  int code_ = -1;
};

TEST_F(ServeTest, IsReadyWhenTheRoleSaysSo) {
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Readyz("weights: no version yet\n"), 503);
  EXPECT_EQ(Health(), HealthClient::kNotServing);
  role_.context().readiness->Set("weights", true);
  EXPECT_EQ(Readyz("ready\n"), 200);
  EXPECT_EQ(Health(), HealthClient::kServing);
}

TEST_F(ServeTest, DrainsInOrderOnSigterm) {
  role_.context().readiness->Set("weights", true);
  ASSERT_EQ(Readyz("ready\n"), 200);
  ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
  ASSERT_TRUE(role_.draining.WaitFor(kGuard));
  EXPECT_GT(role_.drain_left, absl::Seconds(1));
  EXPECT_LE(role_.drain_left, absl::Seconds(7));
  // While draining: alive, not ready, still serving calls.
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_THAT(Get("/readyz").body, HasSubstr("serving: draining"));
  EXPECT_EQ(Health(), HealthClient::kNotServing);
  env::v1::ListEnvironmentsReply reply;
  const auto stub = env::v1::EnvService::NewStub(*MakeChannel(role_.context().grpc_address, {}));
  EXPECT_TRUE(stub->ListEnvironments(CallWithin(kGuard).get(), {}, &reply).ok());
  EXPECT_EQ(role_.stops, 0);
  role_.go.Notify();
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(role_.stops, 1);
  EXPECT_FALSE(stub->ListEnvironments(CallWithin(kGuard).get(), {}, &reply).ok());
}

TEST_F(ServeTest, EndsWhenTheRoleAsks) {
  role_.go.Notify();
  role_.context().request_drain(absl::OkStatus());
  EXPECT_EQ(Join(), 0);
}

TEST_F(ServeTest, ExposesRpcMetrics) {
  const MetricLabels method = {{"grpc_service", "freshet.env.v1.EnvService"},
                               {"grpc_method", "ListEnvironments"}};
  MetricLabels ok = method;
  ok["grpc_code"] = "OK";
  // Exported as 0 before the first call.
  EXPECT_EQ(MetricsText(Get("/metrics").body).Find("freshet_grpc_server_handled_total", ok), 0);
  EXPECT_EQ(Health(), HealthClient::kNotServing);
  env::v1::ListEnvironmentsReply reply;
  const auto stub = env::v1::EnvService::NewStub(*MakeChannel(role_.context().grpc_address, {}));
  ASSERT_TRUE(stub->ListEnvironments(CallWithin(kGuard).get(), {}, &reply).ok());
  const std::string metrics = Get("/metrics").body;
  const MetricsText text(metrics);
  EXPECT_THAT(text.problems(), IsEmpty());
  EXPECT_EQ(text.Find("freshet_grpc_server_handled_total", ok), 1);
  EXPECT_EQ(text.Find("freshet_grpc_server_handling_seconds_count", method), 1);
  // Also check with promtool if it is installed (Debian package `prometheus`).
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) return;
  const std::string file = ::testing::TempDir() + "/freshet_metrics.txt";
  ASSERT_TRUE(WriteFileAtomically(file, metrics).ok());
  const std::string command = "promtool check metrics <" + file + " >" + file + ".log 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << *ReadFile(file + ".log", 1 << 20);
}

TEST_F(ServeTest, SaysWhatTheProcessIsAndUses) {
  const MetricsText text(Get("/metrics").body);
  EXPECT_EQ(text.Find("freshet_build_info", {{"role", "held"}, {"version", "1.2.3"}}), 1);
  EXPECT_GT(text.Find("process_resident_memory_bytes").value_or(0), 1e6);
  EXPECT_GT(text.Find("process_open_fds").value_or(0), 2);
  EXPECT_GE(text.Find("process_max_fds").value_or(0), *text.Find("process_open_fds"));
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(text.Find("process_start_time_seconds").value_or(0), now, 600);
  EXPECT_EQ(text.Find("freshet_test_scrapes"), 1);  // updated by each scrape
}

TEST(ServeTls, ShowsWhenItsCertificateEnds) {
  Certificates certs;
  certs.MakeAuthority("ca");
  certs.Make("held", "ca", "DNS:localhost");
  ServeOptions options;
  options.role = "held";
  options.endpoint.tls = certs.Files("held", "ca");
  HeldRole role;
  int code = -1;
  std::thread thread([&] { code = Serve(role, options); });
  EXPECT_TRUE(role.started.WaitFor(kGuard));
  const MetricsText text(role.Get("/metrics").body);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(text.Find("freshet_tls_certificate_expiry_timestamp_seconds").value_or(0),
              now + 2 * 86400, 600);
  role.go.Notify();
  role.context().request_drain(absl::OkStatus());
  thread.join();
  EXPECT_EQ(code, 0);
}

TEST_F(ServeTest, ShowsNoCertificateWithoutTls) {
  EXPECT_THAT(Get("/metrics").body, ::testing::Not(HasSubstr("freshet_tls_certificate")));
}

// Runs the echo role as a process with the flags `args`.
ChildResult RunEcho(std::vector<std::string> args) {
  args.insert(args.begin(), ECHO_ROLE);
  ChildProcess process(args);
  return process.Wait(absl::Seconds(30));
}

TEST(ServeProcess, SaysItsPortsWhenReadyAndExitsCleanlyOnSigterm) {
  ChildProcess process({ECHO_ROLE});
  ASSERT_TRUE(process.AwaitOutput("ready echo", kGuard));
  process.Signal(SIGTERM);
  const ChildResult result = process.Wait(kGuard);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              MatchesRegex("ready echo grpc=127.0.0.1:[1-9][0-9]* http=127.0.0.1:[1-9][0-9]*\n"
                           "draining\nstopped\n"));
}

TEST(ServeProcess, NeedsNoHttpPort) {
  const ChildResult result = RunEcho({"--http-listen", "", "--ask-to-end"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(" http=-\n"));
}

TEST(ServeProcess, EndsAtOnceOnTheSecondSignal) {
  ChildProcess process({ECHO_ROLE, "--hang-drain"});
  ASSERT_TRUE(process.AwaitOutput("ready echo", kGuard));
  process.Signal(SIGINT);
  ASSERT_TRUE(process.AwaitOutput("draining", kGuard));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(kGuard).exit_code, 130);
}

TEST(ServeProcess, TellsErrorsByItsExitCode) {
  struct Case {
    std::vector<std::string> args;
    int code;
    const char* part;
  };
  const std::vector<Case> cases = {
      {{"--listen", "0.0.0.0:0"}, 2, "--insecure"},
      {{"--nonsense"}, 2, "--nonsense"},
      {{"--tls-cert", "/no/c", "--tls-key", "/no/k", "--tls-ca", "/no/ca"}, 3, "/no/ca"},
      {{"--tls-peer-name", "n"}, 2, "needs TLS"},
      {{"--listen", "192.0.2.1:1", "--insecure"}, 3, "192.0.2.1:1"},
      {{"--http-listen", "192.0.2.1:1"}, 3, "192.0.2.1:1"},
      {{"--fail-start", "content"}, 3, "bad model"},
      {{"--fail-start", "unavailable"}, 7, "no controller"},
      {{"--ask-to-fail"}, 1, "leadership lost"},
      {{"--ask-to-end", "--fail-drain"}, 1, "work was left"}};
  for (const Case& c : cases) {
    const ChildResult result = RunEcho(c.args);
    EXPECT_EQ(result.exit_code, c.code) << c.part << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.part));
    EXPECT_THAT(result.err, HasSubstr("freshet-echo: "));
  }
}

TEST(ServeProcess, PrintsItsHelp) {
  const ChildResult result = RunEcho({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("--http-listen"));
}

}  // namespace
}  // namespace freshet::runtime
