// User tokens over mutual TLS, with a policy per method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/digest.h"
#include "base/str_cat.h"
#include "services/runtime/authorizer.h"
#include "services/runtime/client_stream.h"
#include "tests/services/runtime/tls_fixture.h"
#include "tests/testing/fake_clock.h"

namespace freshet::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Members may call everything, viewers one method, admins two; users without a token nothing.
constexpr char kPolicy[] = R"({"name": "p", "allow_rules": [
  {"name": "members", "source": {"principals": ["spiffe://f/rollout"]}},
  {"name": "viewers", "source": {"principals": ["role:viewer", "role:admin"]},
   "request": {"paths": ["/freshet.env.v1.EnvService/ListEnvironments"]}},
  {"name": "admins", "source": {"principals": ["role:admin"]},
   "request": {"paths": ["/freshet.env.v1.EnvService/Episode"]}}]})";

// A user list by name and role. The token of NAME is "token-of-NAME".
std::string Users(const std::vector<std::pair<std::string, std::string>>& users) {
  std::string entries;
  for (const auto& [name, role] : users) {
    entries += StrCat(entries.empty() ? "" : ",", R"({"name": ")", name, R"(", "role": ")", role,
                      R"(", "token_sha256": ")", Sha256Hex(StrCat("token-of-", name)), R"("})");
  }
  return StrCat(R"({"users": [)", entries, "]}");
}

class UsersTest : public TlsTest {
 protected:
  void SetUp() override {
    TlsTest::SetUp();
    certs_.Make("user", "ca", "DNS:user.rl.svc");
    options_.tls.refresh = absl::Seconds(1);
    options_.authz_policy = certs_.Path("policy.json");
    options_.users = certs_.Path("users.json");
    ASSERT_TRUE(WriteFileAtomically(options_.authz_policy, kPolicy).ok());
    Know({{"vera", "viewer"}, {"ada", "admin"}});
  }
  void Know(const std::vector<std::pair<std::string, std::string>>& users) {
    ASSERT_TRUE(WriteFileAtomically(options_.users, Users(users)).ok());
  }
  ChannelOptions As(const std::string& certificate, const std::string& token) {
    ChannelOptions options;
    options.tls.files = certs_.Files(certificate, "ca");
    options.bearer_token = token;
    return options;
  }
  absl::Status List(const std::string& certificate, const std::string& token) {
    return CallWith(As(certificate, token));
  }
  // One exchange on the stream, which only admins may call.
  absl::Status Play(const std::string& certificate, const std::string& token) {
    const auto channel = MakeChannel(server_->address(), As(certificate, token));
    if (!channel.ok()) return channel.status();
    const auto stub = env::v1::EnvService::NewStub(*channel);
    auto stream = ClientStream<env::v1::EpisodeRequest, env::v1::EpisodeReply>::Start(
        CallWithin(kGuard), [&](auto* c, auto* r) { stub->async()->Episode(c, r); });
    env::v1::EpisodeRequest request;
    request.mutable_step()->set_action("a");
    stream->Write(request, kGuard).IgnoreError();
    return stream->Read(kGuard).status();
  }
  // Polls until `holds`, while the files are reread.
  static bool Becomes(const std::function<bool()>& holds) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!holds()) {
      if (absl::Now() > deadline) return false;
    }
    return true;
  }
};

TEST_F(UsersTest, ARoleMayCallItsMethodsAndNoOthers) {
  Start();
  EXPECT_TRUE(List("user", "token-of-vera").ok());
  EXPECT_TRUE(List("user", "token-of-ada").ok());
  EXPECT_TRUE(Play("user", "token-of-ada").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Play("user", "token-of-vera")));
}

TEST_F(UsersTest, ATokenIsAddedToTheCertificatesNames) {
  Start();
  // A standby forwards a user's token with its own certificate.
  EXPECT_TRUE(List("rollout", "").ok());
  EXPECT_TRUE(Play("rollout", "token-of-vera").ok());
}

TEST_F(UsersTest, WithoutATokenTheCertificateOfUsersOpensNothing) {
  Start();
  const absl::Status denied = List("user", "");
  EXPECT_TRUE(absl::IsPermissionDenied(denied)) << denied;
  EXPECT_THAT(std::string(denied.message()), HasSubstr("without a token"));
  EXPECT_THAT(Metrics(), HasSubstr("freshet_authn_failures_total{reason=\"missing\"} 1"));
  EXPECT_THAT(Metrics(), HasSubstr("freshet_authz_denied_total 1"));
}

TEST_F(UsersTest, ATokenThatIsNotKnownIsRefusedEvenOfAMember) {
  Start();
  EXPECT_THAT(Metrics(), HasSubstr("freshet_authn_failures_total{reason=\"unknown\"} 0"));
  for (const char* certificate : {"user", "rollout"}) {
    const absl::Status refused = List(certificate, "token-of-nobody");
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
    EXPECT_EQ(refused.message(), "the token is not known");
  }
  // The hash of a token must not be accepted as a token.
  EXPECT_TRUE(absl::IsUnauthenticated(List("user", Sha256Hex("token-of-ada"))));
  EXPECT_THAT(Metrics(), HasSubstr("freshet_authn_failures_total{reason=\"unknown\"} 3"));
  EXPECT_THAT(Metrics(), HasSubstr("freshet_authz_denied_total 0"));
}

TEST_F(UsersTest, AHeaderThatIsNoTokenIsRefused) {
  Start();
  const auto channel = MakeChannel(server_->address(), As("rollout", ""));
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto stub = env::v1::EnvService::NewStub(*channel);
  for (const char* header : {"Basic dmVyYTp4", "Bearer", "Bearer ", "token-of-ada"}) {
    const auto context = CallWithin(kGuard);
    context->AddMetadata("authorization", header);
    env::v1::ListEnvironmentsReply reply;
    const absl::Status refused = GrpcToStatus(stub->ListEnvironments(context.get(), {}, &reply));
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << header << refused;
  }
  EXPECT_THAT(Metrics(), HasSubstr("freshet_authn_failures_total{reason=\"malformed\"} 4"));
}

TEST_F(UsersTest, ATokenWithoutACertificateIsEnoughWhereNoneIsAskedFor) {
  options_.require_client_cert = false;
  Start();
  EXPECT_TRUE(List("", "token-of-vera").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(List("", "")));
}

TEST_F(UsersTest, NobodyTakesAUsersNameByCertificate) {
  certs_.Make("forged", "ca", "URI:role:admin,URI:user:ada");
  Start();
  EXPECT_TRUE(absl::IsPermissionDenied(List("forged", "")));
}

// Changes users, policy and certificates while the server runs.
TEST_F(UsersTest, UsersPolicyAndCertificatesChangeWithoutARestart) {
  Start();
  ASSERT_TRUE(List("user", "token-of-vera").ok());
  ASSERT_TRUE(absl::IsPermissionDenied(Play("user", "token-of-vera")));
  // Change one user's role, remove another and add a third.
  Know({{"vera", "admin"}, {"carl", "viewer"}});
  EXPECT_TRUE(Becomes([&] { return Play("user", "token-of-vera").ok(); }));
  EXPECT_TRUE(absl::IsUnauthenticated(List("user", "token-of-ada")));
  EXPECT_TRUE(List("user", "token-of-carl").ok());
  // An invalid list is ignored.
  ASSERT_TRUE(WriteFileAtomically(options_.users, "{\"users\": [{}]}").ok());
  EXPECT_TRUE(Becomes([&] {
    return List("user", "token-of-carl").ok() &&
           Metrics().find("freshet_authz_reloads_total{result=\"error\"} 1") != std::string::npos;
  }));
  EXPECT_TRUE(Play("user", "token-of-vera").ok());
  // Replace all certificates: old ones are refused; tokens and policy stay valid.
  certs_.MakeAuthority("new_ca");
  certs_.Make("new_server", "new_ca", kServerNames);
  certs_.Make("new_user", "new_ca", "DNS:user.rl.svc");
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"new_server.key", "server.key"},
                                                        {"new_server.pem", "server.pem"},
                                                        {"new_ca.pem", "ca.pem"}}) {
    std::filesystem::rename(certs_.Path(from), certs_.Path(to));
  }
  EXPECT_TRUE(
      Becomes([&] { return CallWith(As("new_user", "token-of-vera"), absl::Seconds(1)).ok(); }));
  EXPECT_FALSE(CallWith(As("user", "token-of-vera"), absl::Seconds(1)).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(List("new_user", "token-of-ada")));
}

TEST_F(UsersTest, DoesNotStartWithoutUsersThatItWasGiven) {
  options_.users = certs_.Path("absent.json");
  const absl::Status absent = Server::Start(options_, {}, nullptr).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("absent.json"));
}

TEST(Authorizer, KeepsTheLastGoodUsersAndLooksAgainAfterTheRefreshTime) {
  Certificates files;  // owns its folder
  EndpointOptions options;
  options.authz_policy = files.Path("policy.json");
  options.users = files.Path("users.json");
  options.tls.refresh = absl::Seconds(10);
  ASSERT_TRUE(WriteFileAtomically(options.authz_policy, kPolicy).ok());
  ASSERT_TRUE(WriteFileAtomically(options.users, Users({{"ann", "viewer"}})).ok());
  FakeClock clock;
  const auto authorizer = Authorizer::Create(options, nullptr, clock);
  ASSERT_TRUE(authorizer.ok()) << authorizer.status();
  const auto known = [&](const std::string& name) {
    const std::string header = StrCat("Bearer token-of-", name);
    return (*authorizer)->Identify({"cert"}, {header}).ok();
  };
  const auto ann = (*authorizer)->Identify({"cert"}, {"bearer token-of-ann"});
  ASSERT_TRUE(ann.ok()) << ann.status();
  EXPECT_THAT(*ann, ElementsAre("cert", "user:ann", "role:viewer"));
  EXPECT_THAT(*(*authorizer)->Identify({"cert"}, {}), ElementsAre("cert"));
  EXPECT_FALSE((*authorizer)->Identify({}, {"Bearer token-of-ann", "Bearer token-of-ann"}).ok());
  ASSERT_TRUE(WriteFileAtomically(options.users, Users({{"bob", "viewer"}})).ok());
  EXPECT_TRUE(known("ann")) << "not before the refresh time";
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(known("bob"));
  EXPECT_FALSE(known("ann"));
  ASSERT_TRUE(WriteFileAtomically(options.users, "broken").ok());
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(known("bob"));
  std::filesystem::remove(options.users);
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(known("bob"));
}

}  // namespace
}  // namespace freshet::runtime
