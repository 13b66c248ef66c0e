#include "base/log_gate.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(LogGate, ACauseIsWrittenOnceAPeriodWhileItStays) {
  LogGate gate(absl::Minutes(1));
  const absl::Time start = absl::UnixEpoch();
  EXPECT_TRUE(gate.Admit("no version yet", start));
  EXPECT_FALSE(gate.Admit("no version yet", start + absl::Seconds(1)));
  EXPECT_FALSE(gate.Admit("no version yet", start + absl::Seconds(59)));
  EXPECT_TRUE(gate.Admit("no version yet", start + absl::Seconds(60)));
  EXPECT_FALSE(gate.Admit("no version yet", start + absl::Seconds(61)));
}

TEST(LogGate, AnotherCauseIsWrittenAtOnce) {
  LogGate gate(absl::Minutes(1));
  const absl::Time start = absl::UnixEpoch();
  EXPECT_TRUE(gate.Admit("no version yet", start));
  EXPECT_TRUE(gate.Admit("refused", start));
  EXPECT_TRUE(gate.Admit("no version yet", start));
  EXPECT_FALSE(gate.Admit("no version yet", start));
}

}  // namespace
}  // namespace freshet
