// A role for tests of Serve: the common flags plus --fail-start, --drain-ms, --hang-drain,
// --ask-to-end and --ask-to-fail.
#include <prometheus/registry.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/mutex.h"
#include "services/runtime/serve.h"
#include "tests/services/runtime/echo_service.h"

namespace freshet {
namespace {

struct Behaviour {
  std::string fail_start;
  bool hang_drain = false;
  bool fail_drain = false;
  bool ask_to_end = false;
  bool ask_to_fail = false;
  bool not_ready = false;
};

void Say(const char* line) {
  std::puts(line);
  std::fflush(stdout);
}

class EchoRole final : public runtime::Role {
 public:
  explicit EchoRole(const Behaviour& behaviour) : behaviour_(behaviour) {}
  std::vector<grpc::Service*> Services() override { return {&service_}; }
  absl::Status Start(const runtime::RoleContext& context) override {
    if (behaviour_.fail_start == "unavailable") return absl::UnavailableError("no controller");
    if (!behaviour_.fail_start.empty()) return absl::InvalidArgumentError("bad model");
    if (behaviour_.not_ready) context.readiness->Set("weights", false, "no version yet");
    if (behaviour_.ask_to_end) context.request_drain(absl::OkStatus());
    if (behaviour_.ask_to_fail) context.request_drain(absl::AbortedError("leadership lost"));
    return absl::OkStatus();
  }
  absl::Status Drain(absl::Time deadline) override {
    Say("draining");
    if (behaviour_.hang_drain) Notification().WaitFor(deadline - absl::Now());
    return behaviour_.fail_drain ? absl::DeadlineExceededError("work was left") : absl::OkStatus();
  }
  void Stop() override {
    service_.Stop();
    Say("stopped");
  }

 private:
  const Behaviour behaviour_;
  EchoService service_;
};

int Main(int argc, char** argv) {
  CommandLine app("a role for tests", "freshet-echo");
  Behaviour behaviour;
  app.Add("--fail-start", behaviour.fail_start);
  app.AddFlag("--hang-drain", behaviour.hang_drain);
  app.AddFlag("--fail-drain", behaviour.fail_drain);
  app.AddFlag("--ask-to-end", behaviour.ask_to_end);
  app.AddFlag("--ask-to-fail", behaviour.ask_to_fail);
  app.AddFlag("--not-ready", behaviour.not_ready);
  runtime::ServeOptions options;
  options.role = "echo";
  runtime::AddEndpointFlags(app, options.endpoint);
  if (const auto code = app.Parse(argc, argv)) return *code;
  EchoRole role(behaviour);
  return runtime::Serve(role, options);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
