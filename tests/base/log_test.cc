#include "base/log.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class LogTest : public testing::Test {
 protected:
  LogTest() {
    SetLogSink([this](LogSeverity, absl::Time, std::string_view text) {
      heard_.emplace_back(text.substr(text.find(' ') + 1));
    });
  }
  ~LogTest() override {
    SetLogSink(nullptr);
    SetLogFormat(LogFormat::kText);
    SetLogRole("");
    SetLogWorker("");
    SetMinLogSeverity(LogSeverity::kInfo);
  }
  // Runs `act` and returns its stderr output.
  template <typename Act>
  static std::string Written(const Act& act) {
    testing::internal::CaptureStderr();
    act();
    return testing::internal::GetCapturedStderr();
  }

  std::vector<std::string> heard_;
};

TEST_F(LogTest, LinesNameRoleWorkerAndJob) {
  SetLogRole("trainer");
  SetLogWorker("trainer-1");
  const LogScope scope("sums");
  EXPECT_THAT(Written([] { FRESHET_LOG(Error) << "event=x step=" << 3; }),
              MatchesRegex("time=[^ ]+Z level=error role=trainer worker=trainer-1 "
                           "at=log_test.cc:[0-9]+ job=sums event=x step=3\n"));
}

TEST_F(LogTest, LinesAreJsonWhereThatIsAskedFor) {
  SetLogRole("env");
  SetLogFormat(LogFormat::kJson);
  const std::string written = Written([] { FRESHET_LOG(Info) << "event=x reason=\"a b\""; });
  const auto json = nlohmann::json::parse(written);
  EXPECT_EQ(json["role"], "env");
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["event"], "x");
  EXPECT_EQ(json["reason"], "a b");
  EXPECT_FALSE(json.contains("worker"));
  // Listeners get plain text in any format.
  EXPECT_THAT(heard_, ElementsAre("event=x reason=\"a b\""));
}

TEST_F(LogTest, ScopesNestAndBelongToTheirThread) {
  {
    const LogScope outer("a");
    {
      const LogScope inner("b");
      FRESHET_LOG(Info) << "event=1";
    }
    FRESHET_LOG(Info) << "event=2";
    std::thread([] { FRESHET_LOG(Info) << "event=3"; }).join();
  }
  FRESHET_LOG(Info) << "event=4";
  EXPECT_THAT(heard_, ElementsAre("job=b event=1", "job=a event=2", "event=3", "event=4"));
}

TEST_F(LogTest, LinesBelowTheLeastSeverityAreNotWritten) {
  SetMinLogSeverity(LogSeverity::kWarning);
  EXPECT_THAT(Written([] {
                FRESHET_LOG(Info) << "event=small";
                FRESHET_LOG(Warning) << "event=large";
              }),
              AllOf(HasSubstr("event=large"), Not(HasSubstr("event=small"))));
  EXPECT_THAT(heard_, ElementsAre("event=large"));
}

}  // namespace
}  // namespace freshet
