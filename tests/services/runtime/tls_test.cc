// TLS, mutual TLS, certificate rotation and authorization over real connections.
#include "services/runtime/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <cstdlib>

#include "absl/time/clock.h"
#include "base/str_cat.h"
#include "services/runtime/authorizer.h"
#include "services/runtime/certificate_metrics.h"
#include "services/worker/channel_cache.h"
#include "tests/services/runtime/tls_fixture.h"
#include "tests/testing/fake_clock.h"

namespace freshet::runtime {
namespace {

using ::testing::HasSubstr;

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
  // Replace the files atomically with ones signed by a new authority.
  certs_.MakeAuthority("new_ca");
  certs_.Make("new_server", "new_ca", kServerNames);
  certs_.Make("new_rollout", "new_ca", "URI:spiffe://f/rollout");
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"new_server.key", "server.key"},
                                                        {"new_server.pem", "server.pem"},
                                                        {"new_ca.pem", "ca.pem"}}) {
    std::filesystem::rename(certs_.Path(from), certs_.Path(to));
  }
  // The new files take effect when they are reread, after `refresh` at the latest.
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
  EXPECT_THAT(Metrics(), HasSubstr("freshet_authz_denied_total 1"));
  EXPECT_THAT(Metrics(), ::testing::Not(HasSubstr("freshet_authn_failures_total")));
}

TEST_F(TlsTest, DoesNotStartWithoutAPolicyThatItWasGiven) {
  options_.authz_policy = certs_.Path("absent.json");
  EXPECT_EQ(Server::Start(options_, {}, nullptr).status().code(), absl::StatusCode::kNotFound);
}

// Members are authenticated by name, so their address does not matter.
TEST_F(TlsTest, MembersAreCheckedByTheNameOfTheirRole) {
  certs_.Make("member", "ca", "DNS:freshet-rollout.rl.svc");
  options_.tls = certs_.Files("member", "ca");
  Start();
  ChannelOptions options;
  options.tls.files = certs_.Files("rollout", "ca");
  options.tls.member_name = "freshet-{role}.rl.svc";
  ChannelCache channels(options);
  const auto call = [&](const auto&... where) {
    const auto channel = channels.Get(server_->address(), where...);
    return channel.ok() ? CallOver(*channel) : channel.status();
  };
  EXPECT_TRUE(call(cluster::v1::ROLE_ROLLOUT).ok());
  EXPECT_TRUE(absl::IsUnavailable(call(cluster::v1::ROLE_TRAINER)));
  // An address named by a job is verified against its host, which the certificate does not contain.
  EXPECT_TRUE(absl::IsUnavailable(call()));
  EXPECT_EQ(*channels.Get(server_->address(), cluster::v1::ROLE_ROLLOUT),
            *channels.Get(server_->address(), cluster::v1::ROLE_ROLLOUT));
}

TEST_F(TlsTest, WithoutAMembersNameTheHostCounts) {
  Start();
  ChannelOptions options;
  options.tls.files = certs_.Files("rollout", "ca");
  ChannelCache channels(options);
  const auto member = channels.Get(server_->address(), cluster::v1::ROLE_TRAINER);
  ASSERT_TRUE(member.ok()) << member.status();
  EXPECT_TRUE(CallOver(*member).ok());
  EXPECT_EQ(*member, *channels.Get(server_->address()));
}

TEST_F(TlsTest, TellsWhenItsCertificateEnds) {
  const std::string path = certs_.Path("server.pem");
  CertificateMetrics certificate(*registry_, path);
  const auto shown = [&] {
    const std::string text = Metrics();
    const std::string name = "\nfreshet_tls_certificate_expiry_timestamp_seconds ";
    const size_t at = text.find(name);
    return at == std::string::npos ? 0.0 : std::strtod(text.c_str() + at + name.size(), nullptr);
  };
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(shown(), now + 2 * 86400, 600);
  certs_.Make("server", "ca", kServerNames, /*days=*/9);
  certificate.Refresh();
  EXPECT_NEAR(shown(), now + 9 * 86400, 600);
  ASSERT_TRUE(WriteFileAtomically(path, "no certificate\n").ok());
  certificate.Refresh();
  EXPECT_NEAR(shown(), now + 9 * 86400, 600);
  EXPECT_EQ(CertificateEnd(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CertificateEnd(certs_.Path("absent.pem")).status().code(), absl::StatusCode::kNotFound);
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
  EndpointOptions options;
  options.authz_policy = path;
  options.tls.refresh = absl::Seconds(10);
  const auto authorizer = Authorizer::Create(options, &registry, clock);
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
