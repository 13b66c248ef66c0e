#include "local/crash_point.h"

#include <csignal>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

std::unique_ptr<FaultPoints> Points(const std::string& crash_at) {
  auto points = MakeFaultPoints(crash_at);
  EXPECT_TRUE(points.ok()) << points.status();
  return *std::move(points);
}

TEST(CrashPoint, WithoutOneNothingHappens) {
  const auto points = Points("");
  for (int i = 0; i < 10; ++i) points->Reach("commit");
}

TEST(CrashPointDeathTest, DiesAtTheNthHitAndSaysSo) {
  EXPECT_EXIT(
      {
        const auto points = Points("commit:3");
        points->Reach("commit");
        points->Reach("publish");
        points->Reach("commit");
        std::fprintf(stderr, "two hits; ");
        points->Reach("commit");
      },
      testing::KilledBySignal(SIGKILL), "two hits; freshet: crash at fault point commit, hit 3");
}

TEST(CrashPoint, OtherPointsDoNotCount) {
  const auto points = Points("commit:1");
  points->Reach("publish");
  points->Reach("commi");
  points->Reach("commit_");
}

TEST(CrashPoint, AnythingElseIsRefused) {
  for (const char* bad : {"commit", "commit:", "commit:0", "commit:-1", "commit:x", "commit:1x"}) {
    const auto points = MakeFaultPoints(bad);
    ASSERT_EQ(points.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(Message(points.status()), HasSubstr(StrCat("--crash-at ", bad)));
  }
}

}  // namespace
}  // namespace freshet
