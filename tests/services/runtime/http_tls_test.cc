// HTTP over TLS.
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/http_server.h"
#include "tests/services/runtime/certificates.h"
#include "tests/services/runtime/raw_connection.h"

namespace freshet::runtime {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kNames[] = "DNS:localhost,IP:127.0.0.1";
constexpr size_t kLarge = size_t{3} << 20;  // more than a socket holds

class HttpTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    certs_.MakeAuthority("ca");
    certs_.Make("server", "ca", kNames);
    files_ = certs_.Files("server", "ca");
    files_.refresh = absl::ZeroDuration();
  }
  void Start() {
    HttpAsyncHandler handler = [](const HttpRequest& request,
                                  const std::shared_ptr<HttpReply>& reply) {
      if (request.path != "/stream") {
        return reply->Send({.body = request.path == "/large" ? std::string(kLarge, 'x') : "hi\n"});
      }
      reply->StartStream({.body = "one"});
      reply->Write("two");
      reply->Finish();
    };
    auto server = HttpServer::Start("127.0.0.1:0", std::move(handler), {}, files_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // What the server answers to a GET; "" if its certificate is not of `authority`.
  std::string Get(const std::string& path, const std::string& authority = "ca") {
    struct Free {
      void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
      void operator()(BIO* bio) const { BIO_free_all(bio); }
    };
    const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_load_verify_locations(context.get(), certs_.Path(authority + ".pem").c_str(), nullptr);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    const std::unique_ptr<BIO, Free> bio(BIO_new_ssl_connect(context.get()));
    BIO_set_conn_hostname(bio.get(), server_->address().c_str());
    if (BIO_do_handshake(bio.get()) != 1) return "";
    const std::string request = StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    BIO_write(bio.get(), request.data(), static_cast<int>(request.size()));
    std::string answer;
    std::string buffer(1 << 16, 0);
    for (int got = 1; got > 0;) {
      got = BIO_read(bio.get(), buffer.data(), static_cast<int>(buffer.size()));
      if (got > 0) answer.append(buffer, 0, static_cast<size_t>(got));
    }
    return answer;
  }

  Certificates certs_;
  TlsFiles files_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, AnswersLargeAndStreamedToo) {
  Start();
  EXPECT_THAT(Get("/"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get("/"), EndsWith("\r\n\r\nhi\n"));
  EXPECT_TRUE(Get("/large").ends_with("\r\n\r\n" + std::string(kLarge, 'x')));
  EXPECT_THAT(Get("/stream"), EndsWith("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
}

TEST_F(HttpTlsTest, DoesNotAnswerPlaintext) {
  Start();
  RawConnection connection(server_->address());
  connection.Send("GET / HTTP/1.1\r\n\r\n");
  bool closed = false;
  EXPECT_THAT(connection.ReadAll(&closed), Not(HasSubstr("HTTP/1.1")));
  EXPECT_TRUE(closed);
}

TEST_F(HttpTlsTest, TakesUpNewCertificatesAndKeepsTheLastGoodOnes) {
  Start();
  EXPECT_NE(Get("/"), "");
  certs_.MakeAuthority("new_ca");
  certs_.Make("new", "new_ca", kNames);
  std::filesystem::rename(certs_.Path("new.key"), certs_.Path("server.key"));
  EXPECT_NE(Get("/"), "") << "a key without its certificate is not taken";
  std::filesystem::rename(certs_.Path("new.pem"), certs_.Path("server.pem"));
  EXPECT_NE(Get("/", "new_ca"), "");
  EXPECT_EQ(Get("/", "ca"), "");
  ASSERT_TRUE(WriteFileAtomically(certs_.Path("server.pem"), "rubbish").ok());
  EXPECT_NE(Get("/", "new_ca"), "");
}

TEST_F(HttpTlsTest, NamesFilesThatCannotBeUsed) {
  files_.key = certs_.Path("ca.key");
  const auto server = HttpServer::Start(
      "127.0.0.1:0", [](const HttpRequest&, const std::shared_ptr<HttpReply>&) {}, {}, files_);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("ca.key"));
}

}  // namespace
}  // namespace freshet::runtime
