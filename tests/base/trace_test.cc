#include "base/trace.h"

#include <set>
#include <string>

#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(Trace, IsAFunctionOfTheUid) {
  const std::string trace = TraceIdOf("job/12/0/3");
  // First 16 bytes of the SHA-256 of "job/12/0/3".
  EXPECT_EQ(trace, "8921716ebd3e1f368a5008f360558125");
  EXPECT_NE(trace, TraceIdOf("job/12/1/3"));
}

TEST(Trace, TheChosenShareIsTheSameForAll) {
  int chosen = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string uid = StrCat("job/", i, "/0/0");
    EXPECT_FALSE(IsTraced(uid, 0));
    EXPECT_TRUE(IsTraced(uid, 1));
    const bool tenth = IsTraced(uid, 0.1);
    EXPECT_EQ(tenth, MakeTraceContext(uid, "rollout", 0.1).sampled);
    if (tenth) {
      EXPECT_TRUE(IsTraced(uid, 0.2)) << "a larger share holds the smaller one";
    }
    chosen += tenth ? 1 : 0;
  }
  EXPECT_GT(chosen, 320);
  EXPECT_LT(chosen, 480);
}

TEST(Trace, IsNamedByTraceAndSample) {
  EXPECT_EQ(TraceWords("a/1/2/3"), StrCat("trace=", TraceIdOf("a/1/2/3"), " sample=a/1/2/3"));
}

TEST(Trace, AHeaderIsReadBackAsItWasWritten) {
  for (const double ratio : {0.0, 1.0}) {
    const TraceContext context = MakeTraceContext("job/1/2/3", "rollout", ratio);
    const std::string header = Traceparent(context);
    EXPECT_EQ(header.size(), 55U);
    const std::optional<TraceContext> read = ParseTraceparent(header);
    ASSERT_TRUE(read.has_value()) << header;
    EXPECT_EQ(read->trace_id, TraceIdOf("job/1/2/3"));
    EXPECT_EQ(read->span_id, context.span_id);
    EXPECT_EQ(read->sampled, ratio == 1.0);
  }
  EXPECT_NE(MakeTraceContext("job/1/2/3", "rollout", 0).span_id,
            MakeTraceContext("job/1/2/3", "reward", 0).span_id);
}

TEST(Trace, TakesHeadersOfLaterVersionsAndNothingElse) {
  const std::string ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
  EXPECT_TRUE(ParseTraceparent("00-" + ids + "-03")->sampled);
  EXPECT_FALSE(ParseTraceparent("00-" + ids + "-02")->sampled);
  EXPECT_TRUE(ParseTraceparent("01-" + ids + "-01-more")->sampled);
  const std::string bad[] = {"",
                             "00",
                             "00-" + ids,
                             "00-" + ids + "-0",
                             "00-" + ids + "-01-more",
                             "01-" + ids + "-01more",
                             "ff-" + ids + "-01",
                             "00-" + ids + "-0x",
                             "00_" + ids + "-01",
                             "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                             "00-" + std::string(32, '0') + "-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-" + std::string(16, '0') + "-01",
                             std::string(55, '-'),
                             std::string(100'000, '0')};
  for (const std::string& header : bad) {
    EXPECT_FALSE(ParseTraceparent(header).has_value()) << header.substr(0, 80);
  }
}

}  // namespace
}  // namespace freshet
