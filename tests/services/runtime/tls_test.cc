// TLS, mutual TLS, rotation, and authorization over real connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "services/base/str_cat.h"
#include "services/runtime/authorizer.h"
#include "services/runtime/channel.h"
#include "services/runtime/server.h"
#include "services/runtime/status.h"
#include "tests/services/runtime/certificates.h"
#include "tests/services/runtime/echo_service.h"
#include "tests/services/runtime/health_client.h"
#include "tests/testing/fake_clock.h"

namespace freshet::runtime {
namespace {

using ::testing::HasSubstr;
constexpr absl::Duration kGuard = absl::Seconds(10);
constexpr char kServerNames[] = "DNS:localhost,IP:127.0.0.1,URI:spiffe://f/controller";

class TlsTest : public ::testing::Test {
 protected:
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
  // One call over a connection of its own.
  absl::Status Call(const TlsFiles& files, const std::string& server_name = "",
                    absl::Duration timeout = kGuard) {
    ChannelOptions options;
    options.tls.files = files;
    options.tls.server_name = server_name;
    options.own_connection = true;
    const auto channel = MakeChannel(server_->address(), options);
    if (!channel.ok()) return channel.status();
    env::v1::ListEnvironmentsReply reply;
    return GrpcToStatus(env::v1::EnvService::NewStub(*channel)->ListEnvironments(
        CallWithin(timeout).get(), {}, &reply));
  }

  Certificates certs_;
  EndpointOptions options_;
  EchoService service_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<Server> server_;
};

TEST_F(TlsTest, LetsInWhoHasACertificateOfTheAuthority) {
  Start();
  EXPECT_TRUE(Call(certs_.Files("rollout", "ca")).ok());
}

TEST_F(TlsTest, KeepsOutWhoHasNone) {
  Start();
  EXPECT_TRUE(absl::IsUnavailable(Call(certs_.Files("", "ca"))));
  EXPECT_TRUE(absl::IsUnavailable(Call({})));
}

TEST_F(TlsTest, KeepsOutWhoHasOneOfAnotherAuthority) {
  certs_.MakeAuthority("other");
  certs_.Make("stranger", "other", "URI:spiffe://f/rollout");
  Start();
  EXPECT_TRUE(absl::IsUnavailable(Call(certs_.Files("stranger", "ca"))));
}

TEST_F(TlsTest, DoesNotTalkToAServerOfAnotherAuthorityOrName) {
  certs_.MakeAuthority("other");
  Start();
  EXPECT_TRUE(absl::IsUnavailable(Call(certs_.Files("rollout", "other"))));
  EXPECT_TRUE(absl::IsUnavailable(Call(certs_.Files("rollout", "ca"), "evil.example.org")));
  EXPECT_TRUE(Call(certs_.Files("rollout", "ca"), "localhost").ok());
}

TEST_F(TlsTest, AsksForNoCertificateWhenToldSo) {
  options_.require_client_cert = false;
  Start();
  EXPECT_TRUE(Call(certs_.Files("", "ca")).ok());
}

TEST_F(TlsTest, SendsTheBearerToken) {
  Start();
  ChannelOptions options;
  options.tls.files = certs_.Files("rollout", "ca");
  options.bearer_token = "abc";
  const auto channel = MakeChannel(server_->address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  env::v1::ListEnvironmentsReply reply;
  EXPECT_TRUE(env::v1::EnvService::NewStub(*channel)
                  ->ListEnvironments(CallWithin(kGuard).get(), {}, &reply)
                  .ok());
}

TEST_F(TlsTest, NamesFilesThatCannotBeUsed) {
  certs_.Make("second", "ca", kServerNames);
  ASSERT_TRUE(WriteFileAtomically(certs_.Path("junk.pem"), "junk").ok());
  struct Case {
    TlsFiles files;
    const char* part;
  };
  std::vector<Case> cases(3, {certs_.Files("server", "ca"), ""});
  cases[0].files.key = certs_.Path("second.key");
  cases[0].part = "is not the key of the certificate";
  cases[1].files.cert = certs_.Path("junk.pem");
  cases[1].part = "no PEM certificate";
  cases[2].files.ca = certs_.Path("absent.pem");
  cases[2].part = "absent.pem";
  for (const Case& c : cases) {
    options_.tls = c.files;
    const auto server = Server::Start(options_, {}, nullptr);
    ASSERT_FALSE(server.ok());
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(c.part));
  }
}

TEST_F(TlsTest, TakesUpNewCertificatesWithoutARestart) {
  Start();
  ASSERT_TRUE(Call(certs_.Files("rollout", "ca")).ok());
  // A new authority: files of the same names, replaced whole.
  certs_.MakeAuthority("new_ca");
  certs_.Make("new_server", "new_ca", kServerNames);
  certs_.Make("new_rollout", "new_ca", "URI:spiffe://f/rollout");
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"new_server.key", "server.key"},
                                                        {"new_server.pem", "server.pem"},
                                                        {"new_ca.pem", "ca.pem"}}) {
    std::filesystem::rename(certs_.Path(from), certs_.Path(to));
  }
  // Both sides' new files work once they have been read again, at the latest after `refresh`.
  const TlsFiles fresh = certs_.Files("new_rollout", "ca");
  absl::Status status;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  do {
    status = Call(fresh, "", absl::Seconds(1));
  } while (!status.ok() && absl::Now() < deadline);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(Call(certs_.Files("rollout", "ca"), "", absl::Seconds(1)).ok());
}

constexpr char kPolicy[] = R"({"name": "p", "allow_rules": [
  {"name": "rollouts", "source": {"principals": ["spiffe://f/rollout"]},
   "request": {"paths": ["/freshet.env.v1.EnvService/ListEnvironments"]}}]})";

TEST_F(TlsTest, AuthorizesByCertificateAndMethod) {
  certs_.Make("reward", "ca", "URI:spiffe://f/reward");
  options_.authz_policy = certs_.Path("policy.json");
  ASSERT_TRUE(WriteFileAtomically(options_.authz_policy, kPolicy).ok());
  Start();
  EXPECT_TRUE(Call(certs_.Files("rollout", "ca")).ok());
  const absl::Status denied = Call(certs_.Files("reward", "ca"));
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(denied.message()), ::testing::Not(HasSubstr("rollouts")));
  EXPECT_THAT(prometheus::TextSerializer().Serialize(registry_->Collect()),
              HasSubstr("freshet_authz_denied_total 1"));
}

TEST_F(TlsTest, DoesNotStartWithoutAPolicyThatItWasGiven) {
  options_.authz_policy = certs_.Path("absent.json");
  EXPECT_EQ(Server::Start(options_, {}, nullptr).status().code(), absl::StatusCode::kNotFound);
}

TEST(Authorizer, ReadsAChangedPolicyAndKeepsTheLastGoodOne) {
  const std::string path = ::testing::TempDir() + "/freshet_policy_reload.json";
  const auto write = [&](const std::string& principal) {
    const std::string text = StrCat(R"({"name": "p", "allow_rules": [{"name": "r", "source": )",
                                    R"({"principals": [")", principal, R"("]}}]})");
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  };
  write("alice");
  FakeClock clock;
  prometheus::Registry registry;
  const auto authorizer = Authorizer::Create(path, absl::Seconds(10), &registry, clock);
  ASSERT_TRUE(authorizer.ok()) << authorizer.status();
  const auto allows = [&](const char* who) { return (*authorizer)->Decide({who}, "/s/m").allowed; };
  EXPECT_TRUE(allows("alice"));
  write("bob");
  EXPECT_TRUE(allows("alice")) << "not before the refresh time";
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(allows("bob"));
  EXPECT_FALSE(allows("alice"));
  ASSERT_TRUE(WriteFileAtomically(path, "{ broken").ok());
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(allows("bob"));
  std::filesystem::remove(path);
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(allows("bob"));
  write("carol");
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(allows("carol"));
  const std::string metrics = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_THAT(metrics, HasSubstr("freshet_authz_reloads_total{result=\"ok\"} 2"));
  EXPECT_THAT(metrics, HasSubstr("freshet_authz_reloads_total{result=\"error\"} 2"));
}

}  // namespace
}  // namespace freshet::runtime
