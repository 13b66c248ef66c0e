// The small parts: readiness, log ring, executor, backoff, identity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/base/log.h"
#include "services/runtime/backoff.h"
#include "services/runtime/executor.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/readiness.h"
#include "services/runtime/utf8.h"

namespace freshet::runtime {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(10);

TEST(Readiness, HoldsWhenEveryConditionHolds) {
  Readiness readiness;
  EXPECT_TRUE(readiness.ready());
  readiness.Set("weights", false, "no version yet");
  readiness.Set("datastore", false, "not reached");
  EXPECT_FALSE(readiness.ready());
  EXPECT_EQ(readiness.Describe(), "datastore: not reached\nweights: no version yet");
  readiness.Set("datastore", true);
  EXPECT_FALSE(readiness.ready());
  readiness.Set("weights", true);
  EXPECT_TRUE(readiness.ready());
  EXPECT_EQ(readiness.Describe(), "ready");
}

TEST(Readiness, TellsItsListenerOfChangesOnly) {
  Readiness readiness;
  std::vector<bool> told;
  readiness.OnChange([&](bool ready) { told.push_back(ready); });
  readiness.Set("a", false, "x");
  readiness.Set("b", false, "y");
  readiness.Set("a", true);
  readiness.Set("b", true);
  EXPECT_EQ(told, (std::vector<bool>{false, true}));
}

TEST(LogRing, KeepsTheNewestLinesAndCountsTheLost) {
  LogRing ring({.max_lines = 2, .max_line_bytes = 3, .max_taken_bytes = 100});
  ring.Add(LogSeverity::kInfo, absl::UnixEpoch(), "one");
  ring.Add(LogSeverity::kWarning, absl::UnixEpoch(), "second");
  ring.Add(LogSeverity::kError, absl::UnixEpoch(), "3");
  const LogRing::Taken taken = ring.Take();
  ASSERT_EQ(taken.lines.size(), 2u);
  EXPECT_EQ(taken.lines[0].text, "sec");
  EXPECT_EQ(taken.lines[1].text, "3");
  EXPECT_EQ(taken.lost, 1);
  EXPECT_EQ(ring.Take().lost, 0);
}

TEST(LogRing, HandsOutAtMostItsBytesAtATimeButAlwaysALine) {
  LogRing ring({.max_lines = 10, .max_line_bytes = 100, .max_taken_bytes = 5});
  for (const char* text : {"123456789", "1234", "12"}) {
    ring.Add(LogSeverity::kInfo, absl::UnixEpoch(), text);
  }
  EXPECT_EQ(ring.Take().lines.size(), 1u);
  EXPECT_EQ(ring.Take().lines.size(), 1u);
  EXPECT_EQ(ring.Take().lines.size(), 1u);
  EXPECT_TRUE(ring.Take().lines.empty());
}

TEST(LogRing, FillsFromTheProcessLog) {
  LogRing ring;
  SetLogSink([&](LogSeverity severity, absl::Time time, std::string_view text) {
    ring.Add(severity, time, text);
    FRESHET_LOG(Info) << "a sink's own line does not come back to it";
  });
  FRESHET_LOG(Warning) << "event=test";
  SetLogSink(nullptr);
  FRESHET_LOG(Info) << "event=unheard";
  const LogRing::Taken taken = ring.Take();
  ASSERT_EQ(taken.lines.size(), 1u);
  EXPECT_EQ(taken.lines[0].severity, LogSeverity::kWarning);
  EXPECT_THAT(taken.lines[0].text,
              ::testing::MatchesRegex("at=process_parts_test.cc:.* event=test"));
}

TEST(Executor, RunsWhatItHasTakenAndRefusesTheRest) {
  Executor executor(1, 2);
  Notification started;
  Notification go;
  std::atomic<int> ran{0};
  ASSERT_TRUE(executor.TrySubmit([&] {
    started.Notify();
    go.WaitFor(kGuard);
    ++ran;
  }));
  ASSERT_TRUE(started.WaitFor(kGuard));
  EXPECT_TRUE(executor.TrySubmit([&] { ++ran; }));
  EXPECT_TRUE(executor.TrySubmit([&] { ++ran; }));
  EXPECT_EQ(executor.queued(), 2u);
  EXPECT_FALSE(executor.TrySubmit([&] { ++ran; }));
  go.Notify();
  executor.Stop();
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(executor.TrySubmit([&] { ++ran; }));
}

TEST(Backoff, GrowsToItsMaximumAndStartsAgain) {
  Backoff backoff({.initial = absl::Milliseconds(10),
                   .max = absl::Milliseconds(40),
                   .multiplier = 2,
                   .jitter = 0});
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(10));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(20));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(40));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(40));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(10));
}

TEST(Backoff, DrawsWithinItsJitter) {
  Backoff backoff(
      {.initial = absl::Seconds(1), .max = absl::Seconds(1), .jitter = 0.25, .seed = 7});
  bool differs = false;
  const absl::Duration first = backoff.Next();
  for (int i = 0; i < 100; ++i) {
    const absl::Duration wait = backoff.Next();
    EXPECT_GE(wait, absl::Milliseconds(750));
    EXPECT_LE(wait, absl::Seconds(1));
    differs = differs || wait != first;
  }
  EXPECT_TRUE(differs);
}

TEST(ValidUtf8, KeepsWhatIsValidAndMarksTheRest) {
  for (const char* good :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ValidUtf8(good), good);
  }
  const std::vector<std::pair<const char*, const char*>> bad = {{"a\xff", "a?"},
                                                                {"\xc3", "?"},
                                                                {"\xc0\xaf", "??"},
                                                                {"\x80z", "?z"},
                                                                {"\xe2\x82", "??"},
                                                                {"\xe0\x80\x80", "???"},
                                                                {"\xed\xa0\x80", "???"},
                                                                {"\xf4\x90\x80\x80", "????"},
                                                                {"\xc3(\xc3\xa9", "?(\xc3\xa9"}};
  for (const auto& [text, valid] : bad) EXPECT_EQ(ValidUtf8(text), valid);
}

TEST(ProcessIdentity, IsAnotherOneEachTime) {
  EXPECT_EQ(RandomId().size(), 32u);
  EXPECT_NE(RandomId(), RandomId());
  EXPECT_EQ(HostBootId(), HostBootId());
  EXPECT_FALSE(HostName().empty());
}

}  // namespace
}  // namespace freshet::runtime
