#ifndef FRESHET_TESTS_SERVICES_RUNTIME_TLS_FIXTURE_H_
#define FRESHET_TESTS_SERVICES_RUNTIME_TLS_FIXTURE_H_

#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <memory>
#include <string>

#include "services/runtime/channel.h"
#include "services/runtime/server.h"
#include "services/runtime/status.h"
#include "tests/services/runtime/certificates.h"
#include "tests/services/runtime/echo_service.h"

namespace freshet::runtime {

// A TLS server with the echo service, and an authority that signs its certificate and that of the
// caller "rollout".
class TlsTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kGuard = absl::Seconds(10);
  static constexpr char kServerNames[] = "DNS:localhost,IP:127.0.0.1,URI:spiffe://f/controller";

  void SetUp() override {
    certs_.MakeAuthority("ca");
    certs_.Make("server", "ca", kServerNames);
    certs_.Make("rollout", "ca", "URI:spiffe://f/rollout");
    options_.listen = "127.0.0.1:0";
    options_.tls = certs_.Files("server", "ca");
  }
  void Start() {
    auto server = Server::Start(options_, {&service_}, registry_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Makes one call with `files` over a new connection.
  absl::Status Call(const TlsFiles& files, const std::string& server_name = "",
                    absl::Duration timeout = kGuard) {
    ChannelOptions options;
    options.tls.files = files;
    options.tls.server_name = server_name;
    return CallWith(options, timeout);
  }
  absl::Status CallWith(ChannelOptions options, absl::Duration timeout = kGuard) {
    options.own_connection = true;
    const auto channel = MakeChannel(server_->address(), options);
    if (!channel.ok()) return channel.status();
    return CallOver(*channel, timeout);
  }
  absl::Status CallOver(const std::shared_ptr<grpc::Channel>& channel,
                        absl::Duration timeout = kGuard) {
    env::v1::ListEnvironmentsReply reply;
    return GrpcToStatus(env::v1::EnvService::NewStub(channel)->ListEnvironments(
        CallWithin(timeout).get(), {}, &reply));
  }
  std::string Metrics() { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

  Certificates certs_;
  EndpointOptions options_;
  EchoService service_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<Server> server_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_TESTS_SERVICES_RUNTIME_TLS_FIXTURE_H_
