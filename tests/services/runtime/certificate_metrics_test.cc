#include "services/runtime/certificate_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <string>

#include "absl/time/clock.h"
#include "base/file.h"
#include "tests/services/runtime/certificates.h"

namespace freshet::runtime {
namespace {

class CertificateMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    certs_.MakeAuthority("ca");  // for 2 days
    certs_.Make("server", "ca", "DNS:localhost", /*days=*/9);
    certs_.Make("later", "ca", "DNS:later", /*days=*/5);
  }
  // Remaining days according to the metric.
  double Shown() const {
    const auto families = registry_.Collect();
    if (families.size() != 1 || families[0].metric.size() != 1) return 0;
    const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    return (families[0].metric[0].gauge.value - now) / 86400;
  }
  std::string Text(const std::string& name) const {
    return ReadFile(certs_.Path(name), 1 << 20).value_or("");
  }
  void WriteBundle(const std::string& pem) {
    ASSERT_TRUE(WriteFileAtomically(certs_.Path("bundle.pem"), pem).ok());
  }

  Certificates certs_;
  prometheus::Registry registry_;
};

constexpr double kClose = 0.01;

TEST_F(CertificateMetricsTest, WithoutAuthoritiesTheOwnCertificateCounts) {
  const CertificateMetrics certificate(registry_, certs_.Path("server.pem"));
  EXPECT_NEAR(Shown(), 9, kClose);
}

TEST_F(CertificateMetricsTest, AnAuthorityThatEndsFirstCounts) {
  const CertificateMetrics certificate(registry_, certs_.Path("server.pem"), certs_.Path("ca.pem"));
  EXPECT_NEAR(Shown(), 2, kClose);
}

TEST_F(CertificateMetricsTest, TheFirstEndOfABundleCountsWhereverItStands) {
  WriteBundle(Text("later.pem") + Text("ca.pem"));
  CertificateMetrics certificate(registry_, certs_.Path("server.pem"), certs_.Path("bundle.pem"));
  EXPECT_NEAR(Shown(), 2, kClose);
  WriteBundle(Text("later.pem"));
  certificate.Refresh();
  EXPECT_NEAR(Shown(), 5, kClose);
  certs_.Make("server", "ca", "DNS:localhost", /*days=*/3);
  certificate.Refresh();
  EXPECT_NEAR(Shown(), 3, kClose);
}

TEST_F(CertificateMetricsTest, AFileThatCannotBeUsedLeavesTheValue) {
  WriteBundle(Text("ca.pem"));
  CertificateMetrics certificate(registry_, certs_.Path("server.pem"), certs_.Path("bundle.pem"));
  WriteBundle("no certificate\n");
  certificate.Refresh();
  EXPECT_NEAR(Shown(), 2, kClose);
}

}  // namespace
}  // namespace freshet::runtime
