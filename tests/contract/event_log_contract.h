#ifndef FRESHET_TESTS_CONTRACT_EVENT_LOG_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_EVENT_LOG_CONTRACT_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/str_cat.h"
#include "datastore/event_log.h"
#include "gtest/gtest.h"

namespace freshet {

// The implementation under test. `create` returns a log without streams, or null if the backend is
// not available.
struct EventLogBackend {
  std::string name;
  std::function<std::shared_ptr<EventLog>(const EventLogOptions&)> create;
};
inline void PrintTo(const EventLogBackend& backend, std::ostream* out) { *out << backend.name; }

// The default options keep 10 events and remember 4 keys.
class EventLogContract : public testing::TestWithParam<EventLogBackend> {
 protected:
  static constexpr const char* kStream = "{job}:events";

  void SetUp() override {
    options_.max_length = 10;
    options_.recent_keys = 4;
    Make();
    if (log_ == nullptr) GTEST_SKIP() << "the backend is not installed";
  }
  // Creates an empty log with options_.
  void Make() { log_ = GetParam().create(options_); }
  EventLog& log() { return *log_; }
  int64_t Append(const std::string& key, const std::string& value) {
    const auto cursor = log_->Append(kStream, key, value);
    EXPECT_TRUE(cursor.ok()) << cursor.status();
    return cursor.value_or(-1);
  }
  EventPage Read(int64_t after, int64_t max = 100, absl::Duration wait = absl::ZeroDuration()) {
    const auto page = log_->Read(kStream, after, max, wait);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.value_or(EventPage{});
  }
  static std::vector<int64_t> Cursors(const EventPage& page) {
    std::vector<int64_t> cursors;
    for (const StoredEvent& event : page.events) cursors.push_back(event.cursor);
    return cursors;
  }

  EventLogOptions options_;

 private:
  std::shared_ptr<EventLog> log_;
};

TEST_P(EventLogContract, EventsAreNumberedFromOneAndReadBackInOrder) {
  EXPECT_EQ(Append("a", "1"), 1);
  EXPECT_EQ(Append("b", std::string("\0\r\n", 3)), 2);
  const EventPage page = Read(0);
  ASSERT_EQ(page.events.size(), 2u);
  EXPECT_FALSE(page.gap);
  EXPECT_EQ(page.events[0].cursor, 1);
  EXPECT_EQ(page.events[0].key, "a");
  EXPECT_EQ(page.events[0].value, "1");
  EXPECT_EQ(page.events[1].cursor, 2);
  EXPECT_EQ(page.events[1].value, std::string("\0\r\n", 3));
}

TEST_P(EventLogContract, ReadGivesWhatFollowsTheCursorUpToTheMaximum) {
  for (int i = 1; i <= 6; ++i) Append("", StrCat(i));
  EXPECT_EQ(Cursors(Read(2, 3)), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(Cursors(Read(5, 3)), (std::vector<int64_t>{6}));
  EXPECT_TRUE(Read(6, 3).events.empty());
}

TEST_P(EventLogContract, RepeatedKeyGivesTheFirstCursorAndChangesNothing) {
  EXPECT_EQ(Append("a", "first"), 1);
  EXPECT_EQ(Append("b", "x"), 2);
  EXPECT_EQ(Append("a", "second"), 1);
  const EventPage page = Read(0);
  ASSERT_EQ(page.events.size(), 2u);
  EXPECT_EQ(page.events[0].value, "first");
}

TEST_P(EventLogContract, SeveralEventsAreAppendedAtOnce) {
  const auto cursors = log().AppendAll({{kStream, "a", "1"},
                                        {"{job}:samples", "a", "2"},
                                        {kStream, "", "3"},
                                        {kStream, "a", "4"},
                                        {kStream, "b", "5"}});
  ASSERT_TRUE(cursors.ok()) << cursors.status();
  EXPECT_EQ(*cursors, (std::vector<int64_t>{1, 1, 2, 1, 3}));
  EXPECT_EQ(Read(0).events.at(2).value, "5");
  EXPECT_EQ(log().Read("{job}:samples", 0, 10, absl::ZeroDuration())->events.at(0).value, "2");
}

TEST_P(EventLogContract, NoEventsAreNoWork) {
  const auto cursors = log().AppendAll({});
  ASSERT_TRUE(cursors.ok()) << cursors.status();
  EXPECT_TRUE(cursors->empty());
}

TEST_P(EventLogContract, OneBadEventKeepsAllOfThemOut) {
  EXPECT_FALSE(log().AppendAll({{kStream, "a", "1"}, {"", "b", "2"}}).ok());
  EXPECT_TRUE(Read(0).events.empty());
}

TEST_P(EventLogContract, EmptyKeyIsNeverRemembered) {
  EXPECT_EQ(Append("", "x"), 1);
  EXPECT_EQ(Append("", "x"), 2);
}

TEST_P(EventLogContract, KeyIsRememberedForExactlyTheRecentAppends) {
  Append("a", "x");                                         // 1
  for (int i = 0; i < 3; ++i) Append(StrCat("b", i), "x");  // 2..4: "a" is the 4th newest
  EXPECT_EQ(Append("a", "y"), 1);
  Append("c", "x");  // 5: evicts "a" from the remembered keys
  EXPECT_EQ(Append("a", "z"), 6);
  EXPECT_EQ(Append("a", "z"), 6);
}

TEST_P(EventLogContract, LongStreamLosesItsOldestAndReadersAreToldOfTheGap) {
  for (int i = 1; i <= 25; ++i) Append("", StrCat(i));  // only 16..25 are kept
  const EventPage all = Read(0);
  EXPECT_TRUE(all.gap);
  ASSERT_EQ(all.events.size(), 10u);
  EXPECT_EQ(all.events.front().cursor, 16);
  EXPECT_EQ(all.events.front().value, "16");
  EXPECT_EQ(all.events.back().cursor, 25);
  EXPECT_TRUE(Read(14).gap);
  EXPECT_FALSE(Read(15).gap);
  EXPECT_FALSE(Read(25).gap);
}

TEST_P(EventLogContract, AStreamIsBoundedByItsBytesToo) {
  options_.max_bytes = 100;
  Make();
  for (int i = 1; i <= 6; ++i) Append(StrCat("k", i), std::string(28, 'v'));  // 30 bytes each
  EXPECT_EQ(Cursors(Read(0)), (std::vector<int64_t>{4, 5, 6}));
  EXPECT_TRUE(Read(0).gap);
  EXPECT_EQ(Append("k4", "x"), 4);
  // An event larger than max_bytes is kept until the next append, which also evicts its key.
  EXPECT_EQ(Append("large", std::string(200, 'v')), 7);
  EXPECT_EQ(Cursors(Read(0)), (std::vector<int64_t>{7}));
  EXPECT_EQ(Append("k6", std::string(28, 'v')), 8);
  EXPECT_EQ(Append("", "x"), 9);
  EXPECT_EQ(Cursors(Read(0)), (std::vector<int64_t>{8, 9}));
}

TEST_P(EventLogContract, ReaderThatWaitsGetsTheEventThatComes) {
  Append("", "1");
  EventPage page;
  {
    const std::jthread reader([&] { page = Read(1, 100, absl::Seconds(10)); });
    Append("", "2");
  }
  ASSERT_EQ(page.events.size(), 1u);
  EXPECT_EQ(page.events[0].value, "2");
}

TEST_P(EventLogContract, ReaderMayWaitForAStreamThatDoesNotExistYet) {
  EventPage page;
  {
    const std::jthread reader([&] { page = Read(0, 100, absl::Seconds(10)); });
    Append("", "1");
  }
  EXPECT_EQ(Cursors(page), (std::vector<int64_t>{1}));
}

TEST_P(EventLogContract, WaitThatEndsWithoutAnEventGivesAnEmptyPage) {
  Append("", "1");
  const EventPage page = Read(1, 100, absl::Milliseconds(2));
  EXPECT_TRUE(page.events.empty());
  EXPECT_FALSE(page.gap);
}

TEST_P(EventLogContract, PageEndsAtItsBytes) {
  const std::string value(kMaxEventBytes, 'v');  // four such events fill kMaxEventPageBytes
  for (int i = 0; i < 6; ++i) Append("", value);
  EXPECT_EQ(Cursors(Read(0)), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(Cursors(Read(4)), (std::vector<int64_t>{5, 6}));
}

TEST_P(EventLogContract, StreamsAreIndependent) {
  Append("a", "x");
  EXPECT_EQ(*log().Append("{job}:samples", "a", "y"), 1);
  EXPECT_EQ(log().Read("{job}:samples", 0, 10, absl::ZeroDuration())->events[0].value, "y");
  ASSERT_TRUE(log().Delete("{job}:samples").ok());
  EXPECT_EQ(Read(0).events.size(), 1u);
}

TEST_P(EventLogContract, DeletedStreamStartsAgain) {
  Append("a", "x");
  Append("b", "x");
  ASSERT_TRUE(log().Delete(kStream).ok());
  ASSERT_TRUE(log().Delete(kStream).ok());
  EXPECT_TRUE(Read(0).events.empty());
  EXPECT_EQ(Append("a", "new"), 1);
}

TEST_P(EventLogContract, CursorAboveTheNewestIsOutOfRange) {
  const auto code = [&](int64_t after) {
    return log().Read(kStream, after, 10, absl::Seconds(10)).status().code();
  };
  EXPECT_EQ(code(1), absl::StatusCode::kOutOfRange);
  Append("", "x");
  EXPECT_EQ(code(2), absl::StatusCode::kOutOfRange);
}

TEST_P(EventLogContract, TellsTheNewestCursor) {
  const auto newest = [this] { return log().Newest(kStream).value_or(-1); };
  EXPECT_EQ(newest(), 0);
  Append("", "x");
  Append("", "y");
  EXPECT_EQ(newest(), 2);
  EXPECT_TRUE(log().Delete(kStream).ok());
  EXPECT_EQ(newest(), 0);
}

TEST_P(EventLogContract, BadArgumentsAreRefused) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(log().Append("", "k", "v").status().code(), bad);
  EXPECT_EQ(log().Append(kStream, std::string(kMaxEventKeyBytes + 1, 'k'), "v").status().code(),
            bad);
  EXPECT_EQ(log().Append(kStream, "k", std::string(kMaxEventBytes + 1, 'v')).status().code(), bad);
  EXPECT_EQ(log().Read("", 0, 1, absl::ZeroDuration()).status().code(), bad);
  EXPECT_EQ(log().Read(kStream, -1, 1, absl::ZeroDuration()).status().code(), bad);
  EXPECT_EQ(log().Read(kStream, 0, 0, absl::ZeroDuration()).status().code(), bad);
  EXPECT_EQ(log().Read(kStream, 0, kMaxEventPage + 1, absl::ZeroDuration()).status().code(), bad);
  EXPECT_EQ(log().Newest("").status().code(), bad);
  EXPECT_EQ(log().Delete("").code(), bad);
}

TEST_P(EventLogContract, BadOptionsAreRefused) {
  EXPECT_FALSE((EventLogOptions{0, 1}.Validate().ok()));
  EXPECT_FALSE((EventLogOptions{10, 0}.Validate().ok()));
  EXPECT_FALSE((EventLogOptions{10, 11}.Validate().ok()));
  EXPECT_FALSE((EventLogOptions{10, 10, 0}.Validate().ok()));
  EXPECT_TRUE((EventLogOptions{10, 10}.Validate().ok()));
}

TEST_P(EventLogContract, ConcurrentAppendsGetDifferentCursorsWithoutHoles) {
  std::vector<int64_t> cursors(8);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < cursors.size(); ++t) {
      threads.emplace_back([&, t] { cursors[t] = Append("", StrCat(t)); });
    }
  }
  std::sort(cursors.begin(), cursors.end());
  EXPECT_EQ(cursors, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_EVENT_LOG_CONTRACT_H_
