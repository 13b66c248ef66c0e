#include "rollout/openai/endpoint_flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet::openai {
namespace {

using testing::HasSubstr;

class EndpointFlagsTest : public testing::Test {
 protected:
  void GiveCertificate() {
    process_.tls.cert = "cert.pem";
    process_.tls.key = "key.pem";
  }
  EndpointPortOptions Options() {
    const auto options = MakePortOptions(flags_, process_);
    EXPECT_TRUE(options.ok()) << options.status();
    EXPECT_TRUE(options->has_value());
    return **options;
  }
  std::string Error() {
    const auto options = MakePortOptions(flags_, process_);
    return options.ok() ? "" : std::string(options.status().message());
  }

  TestDirectory directory_;
  const std::string token_file_ = directory_.Write("openai_token", "secret\n");
  EndpointFlags flags_;
  runtime::EndpointOptions process_;
};

TEST_F(EndpointFlagsTest, IsOnLoopbackInPlaintextUnlessTurnedOff) {
  GiveCertificate();
  EXPECT_EQ(Options().listen, "127.0.0.1:0");
  EXPECT_FALSE(Options().tls.enabled());
  EXPECT_EQ(Options().token, "");
  EXPECT_TRUE(Options().local_hosts_only);
  for (const char* off : {"", "off"}) {
    flags_.listen = off;
    EXPECT_EQ(*MakePortOptions(flags_, process_), std::nullopt) << off;
  }
}

TEST_F(EndpointFlagsTest, NeedsACertificateAndATokenOffLoopback) {
  flags_.listen = "0.0.0.0:7400";
  EXPECT_THAT(Error(), HasSubstr("--openai-listen 0.0.0.0:7400 is not a loopback address: give "
                                 "--tls-cert"));
  GiveCertificate();
  EXPECT_THAT(Error(), HasSubstr("give --openai-token-file"));
  flags_.token_file = token_file_;
  process_.advertise = "engine-3:7071";
  const EndpointPortOptions options = Options();
  EXPECT_EQ(options.tls.cert, "cert.pem");
  EXPECT_EQ(options.token, "secret");
  EXPECT_EQ(options.advertised_host, "engine-3");
  EXPECT_FALSE(options.local_hosts_only);
}

TEST_F(EndpointFlagsTest, InsecureNeedsNeither) {
  flags_.listen = "0.0.0.0:7400";
  process_.insecure = true;
  EXPECT_FALSE(Options().tls.enabled());
  EXPECT_EQ(Options().token, "");
}

TEST_F(EndpointFlagsTest, NamesABadFlag) {
  flags_.advertise = "engine-3:7400";
  EXPECT_THAT(Error(), HasSubstr("--openai-advertise \"engine-3:7400\""));
  flags_ = {};
  flags_.listen = "engine-3";
  EXPECT_THAT(Error(), HasSubstr("--openai-listen engine-3 is not HOST:PORT"));
  flags_ = {};
  flags_.token_file = "/nowhere";
  EXPECT_THAT(Error(), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace freshet::openai
