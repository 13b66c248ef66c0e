// Environments and engines that fail on some prompts, at staleness bounds that do not allow
// skipping them. The job must finish, and report each prompt that was given up.
//
// By default each case has a few bad prompts. To run with one bad prompt in 2000, the job's default
// keys and a job long enough to contain several of them:
//
//   FRESHET_GIVEN_UP_ONE_IN=2000 build/tests/e2e_services_test --gtest_filter='*GivenUp*'

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/bad_games.h"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Json = nlohmann::json;

constexpr int64_t kPromptsPerStep = 4;  // of QuickJob
constexpr int64_t kGroupSize = 2;

// $FRESHET_GIVEN_UP_ONE_IN; 0: not set, each test uses its own value.
int64_t OneIn() {
  const char* text = std::getenv("FRESHET_GIVEN_UP_ONE_IN");
  return text == nullptr ? 0 : std::atoll(text);
}

void Replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

class GivenUpFixture : public testing::Test {
 protected:
  void SetUp() override { FRESHET_SKIP_WITHOUT_REDIS(); }
  void TearDown() override { ::unsetenv("FRESHET_SIM_FAULT"); }

  // Starts a job with a step per 0.1 s, so that dead groups can be observed while it runs, and with
  // enough prompts for three bad ones.
  void Run(int64_t one_in, int64_t eta, const std::string& more) {
    ::setenv("FRESHET_SIM_ENGINE", "16 1.0 0.02 1.0 8 0.8", 1);
    ::setenv("FRESHET_SIM_STEP_SECONDS", OneIn() > 0 ? "0.02" : "0.1", 1);
    const absl::Status up = cluster_.Start({"rollout-0", "reward-0", "trainer-0"});
    ASSERT_TRUE(up.ok()) << up;
    steps_ = std::max<int64_t>(20, 3 * one_in / kPromptsPerStep + 5);
    std::string yaml = QuickJob(static_cast<int>(steps_), more);
    Replace(yaml, "staleness: {max: 2}", StrCat("staleness: {max: ", eta, "}"));
    if (OneIn() == 0) {
      Replace(yaml, "max_new_tokens: 40",
              "max_new_tokens: 40, max_attempts: 2, max_hand_backs: 2, lease_ttl_ms: 2000");
    }
    const absl::Status submitted = cluster_.Submit("j", yaml);
    ASSERT_TRUE(submitted.ok()) << submitted << "\n" << yaml;
  }
  // The job without its spec.
  job::v1::Job Job() {
    job::v1::Job job = cluster_.Get("j").value_or(job::v1::Job());
    job.clear_spec();
    return job;
  }

  // Expects the running job to count and name the groups that it gave up.
  void ExpectTold(const std::string& reason) {
    job::v1::Job job;
    EXPECT_TRUE(ClusterProcesses::Await(
        [&] {
          job = Job();
          return job.dead_groups_size() > 0 || HasEnded(job);
        },
        Patience()));
    ASSERT_GT(job.dead_groups_size(), 0) << job.ShortDebugString();
    EXPECT_THAT(job.dead_groups(0).reason(), HasSubstr(reason));
    int64_t dead = 0;
    for (const auto& [end, groups] : job.ended()) dead += end.starts_with("dead(") ? groups : 0;
    EXPECT_GE(dead, job.dead_groups_size()) << job.ShortDebugString();
    const ChildResult described = cluster_.Freshet({"describe", "j"});
    EXPECT_THAT(described.out,
                AllOf(HasSubstr("died last"), HasSubstr("dead("), HasSubstr(reason)));
  }
  // Expects the job to succeed with full steps and a valid ledger. Stores the dead groups in dead_,
  // each of which must have `reason`.
  void ExpectFinished(const std::string& reason) {
    EXPECT_TRUE(ClusterProcesses::Await([&] { return HasEnded(Job()); }, Patience()));
    ASSERT_EQ(Job().state(), job::v1::JOB_STATE_SUCCEEDED) << Job().ShortDebugString();
    const ChildResult verified = cluster_.Freshet({"ledger", "verify", "j"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("every promise holds"));
    int64_t trained = 0;
    for (const Json& row : Ledger()) {
      if (row["event"] == "trained" && !row.value("redo", false)) ++trained;
      if (row["event"] != "dead") continue;
      dead_.insert(row["prompt"].get<int64_t>());
      EXPECT_THAT(row.value("reason", ""), HasSubstr(reason)) << row;
    }
    EXPECT_EQ(trained, steps_ * kPromptsPerStep * kGroupSize);
    EXPECT_GE(dead_.size(), 1U);
    RecordProperty("dead_groups", static_cast<int>(dead_.size()));
  }
  std::vector<Json> Ledger() {
    const ChildResult result =
        cluster_.Freshet({"ledger", "export", "j", cluster_.folder().File("ledger")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<Json> rows;
    std::istringstream lines(cluster_.folder().Read("ledger/ledger.jsonl"));
    for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
    return rows;
  }
  static bool HasEnded(const job::v1::Job& job) {
    return job.state() == job::v1::JOB_STATE_SUCCEEDED ||
           job.state() == job::v1::JOB_STATE_FAILED || job.state() == job::v1::JOB_STATE_CANCELLED;
  }
  absl::Duration Patience() const { return absl::Seconds(240 + steps_); }

  ClusterProcesses cluster_;
  int64_t steps_ = 0;
  std::set<int64_t> dead_;  // ordinals
};

// Parameter: staleness.max.
class GivenUpGamesTest : public GivenUpFixture, public testing::WithParamInterface<int64_t> {
 protected:
  void RunWith(const BadGames& games, int64_t one_in, int64_t step_timeout_ms) {
    Run(one_in, GetParam(),
        StrCat("environment: {type: grpc, address: \"", games.address(),
               "\", max_turns: 2, max_turn_tokens: 8, step_timeout_ms: ", step_timeout_ms,
               "}\nreward: {components: {won: {type: environment}}}\n"));
  }
  // Expects that only groups of bad games died, and at most `more` others.
  void ExpectOnlyBadOnesDied(const BadGames& games, int64_t more = 0) const {
    EXPECT_LE(std::ssize(dead_), games.bad() + more);
  }
  static int64_t OneInOr(int64_t one_in) { return OneIn() > 0 ? OneIn() : one_in; }
};

TEST_P(GivenUpGamesTest, ObservationsOutsideOfTheVocabulary) {
  const int64_t one_in = OneInOr(15);
  BadGames games(BadGames::Kind::kForeignObservation, one_in);
  ASSERT_NO_FATAL_FAILURE(RunWith(games, one_in, 60'000));
  ASSERT_NO_FATAL_FAILURE(ExpectTold(StrCat("environment grpc ", games.address())));
  ExpectFinished("observation");
  ExpectOnlyBadOnesDied(games);
}

TEST_P(GivenUpGamesTest, EnvironmentsThatRaise) {
  const int64_t one_in = OneInOr(15);
  BadGames games(BadGames::Kind::kStepRaises, one_in);
  ASSERT_NO_FATAL_FAILURE(RunWith(games, one_in, 60'000));
  ASSERT_NO_FATAL_FAILURE(ExpectTold(StrCat("environment grpc ", games.address())));
  ExpectFinished("KeyError: 'answer'");
  ExpectOnlyBadOnesDied(games);
}

TEST_P(GivenUpGamesTest, EnvironmentsThatHangAtTheirReset) {
  const int64_t one_in = OneInOr(40);
  BadGames games(BadGames::Kind::kResetHangs, one_in);
  ASSERT_NO_FATAL_FAILURE(RunWith(games, one_in, 500));
  ASSERT_NO_FATAL_FAILURE(ExpectTold(StrCat("environment grpc ", games.address())));
  ExpectFinished("environment");
  // On a busy machine a good game may miss its deadline, too. Its group dies only if one of its
  // episodes misses three in a row, in two leases.
  ExpectOnlyBadOnesDied(games, /*more=*/1);
  EXPECT_TRUE(ClusterProcesses::Await([&] { return games.hanging() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Staleness, GivenUpGamesTest, testing::Values(0, 1),
                         [](const auto& tested) { return StrCat("max_", tested.param); });

struct ErrorCase {
  const char* name;
  const char* errors;  // see failing_engine.h
  const char* reason;
};
void PrintTo(const ErrorCase& error, std::ostream* out) { *out << error.name; }

class GivenUpByEngineTest : public GivenUpFixture, public testing::WithParamInterface<ErrorCase> {};

TEST_P(GivenUpByEngineTest, EveryFiftiethPromptBreaksTheEngine) {
  const int64_t one_in = OneIn() > 0 ? OneIn() : 50;
  ::setenv("FRESHET_SIM_FAULT", StrCat(one_in, " ", GetParam().errors).c_str(), 1);
  ASSERT_NO_FATAL_FAILURE(Run(one_in, /*eta=*/0, kLengthReward));
  ASSERT_NO_FATAL_FAILURE(ExpectTold(GetParam().reason));
  ExpectFinished(GetParam().reason);
  // Prompts in the engine together with a bad one, or after it, must not die.
  for (const int64_t ordinal : dead_) EXPECT_EQ(ordinal % one_in, one_in - 1) << ordinal;
}

INSTANTIATE_TEST_SUITE_P(
    Errors, GivenUpByEngineTest,
    testing::Values(ErrorCase{"submit_throws", "submit throw", "bad_alloc"},
                    ErrorCase{"submit_fails", "submit internal", "a kernel of the engine failed"},
                    ErrorCase{"poll_throws", "poll throw", "bad_alloc"},
                    ErrorCase{"poll_fails", "poll internal", "a kernel of the engine failed"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace freshet
