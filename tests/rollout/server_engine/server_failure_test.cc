#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "tests/rollout/server_engine/server_fixture.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ServerFailureTest : public ServerFixture {
 protected:
  // The engine reports the loss of its server, and generates again with weights of `version`.
  void ExpectLostAndBack(ServerEngine& engine, int64_t version = 1) {
    const absl::Status error = RunUntilError(engine);
    EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable) << error;
    EXPECT_EQ(engine.version(Lane::kRollout), (PolicyVersion{-1, -1}));
    EXPECT_FALSE(engine.Idle());
    EXPECT_NE(scratch_.Read("serve"), name_) << "the supervisor was told";
    // Its owner gives up what was in flight.
    for (int64_t id = 0; id < 10; ++id) engine.Cancel(id);
    ASSERT_TRUE(
        RunUntil(engine, [&] { return engine.version(Lane::kRollout).version == version; }));
    responses_.clear();
    Submit(engine, Request(40));
    ASSERT_TRUE(RunUntilIdle(engine));
    EXPECT_THAT((responses_[{40, 0}].spans), ElementsAre(Span{{0, version}, 0, 8}));
  }
  std::unique_ptr<ServerEngine> StartedNamed() {
    auto engine = Started();
    name_ = scratch_.Read("serve");
    return engine;
  }
  std::string name_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, ServerFailureTest, testing::ValuesIn(ServerKinds()),
                         ServerKindName);

TEST_P(ServerFailureTest, RepeatsACallThatFailsOnce) {
  const auto engine = StartedNamed();
  for (const char* kind : {"status500", "truncate", "stream_error"}) {
    responses_.clear();
    Fail(GetParam().generate, kind, /*times=*/2);
    Submit(*engine, Request(1));
    Submit(*engine, Request(2));
    ASSERT_TRUE(RunUntilIdle(*engine)) << kind;
    EXPECT_THAT(errors_, IsEmpty()) << kind << ": " << errors_.front();
    EXPECT_THAT(responses_, SizeIs(2)) << kind;
    EXPECT_THAT((responses_[{1, 0}].response_ids), SizeIs(8)) << kind;
  }
  EXPECT_EQ(scratch_.Read("serve"), name_);
}

TEST_P(ServerFailureTest, NeverReplacesTokensThatWereShown) {
  const auto engine = StartedNamed();
  Tell({{"hold_after", 2}});
  GenerationRequest request = Request(1);
  int shown = 0;
  request.on_token = [&](const GeneratedToken&) { ++shown; };
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilTokens(*engine, 2));
  Tell({{"crash", true}});
  ASSERT_TRUE(RunUntil(*engine, [&] { return failed_.contains(1); }));
  EXPECT_EQ(failed_[1].code(), absl::StatusCode::kUnavailable) << failed_[1];
  EXPECT_EQ(shown, 2);
}

TEST_P(ServerFailureTest, GivesUpARequestThatFailsAloneAndNoOther) {
  options_.retry_delay = absl::Milliseconds(2);
  const auto engine = StartedNamed();
  Tell({{"hold_after", 2}});
  Submit(*engine, Request(9));
  ASSERT_TRUE(RunUntil(*engine, [&] { return Ask().at("running") == 1; }));
  using Code = absl::StatusCode;
  for (const auto& [kind, times, code] :
       std::vector<std::tuple<const char*, int, Code>>{{"wrong_count", 3, Code::kInternal},
                                                       {"not_finite", 3, Code::kInternal},
                                                       {"outside", 3, Code::kInternal},
                                                       {"break", 3, Code::kUnavailable},
                                                       {"status400", 1, Code::kInvalidArgument}}) {
    Fail(GetParam().generate, kind, times);
    Submit(*engine, Request(1));
    ASSERT_TRUE(RunUntil(*engine, [&] { return failed_.contains(1); })) << kind;
    EXPECT_EQ(failed_[1].code(), code) << kind << ": " << failed_[1];
    EXPECT_THAT(Message(failed_[1]), HasSubstr(times == 1 ? "told to reject" : "3 calls in a row"));
    EXPECT_THAT(engine->Cancel(1), IsEmpty()) << kind;
    failed_.clear();
  }
  Tell({{"hold_after", nullptr}});
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_THAT(responses_, SizeIs(1));
  EXPECT_THAT((responses_[{9, 0}].response_ids), SizeIs(8));
  EXPECT_THAT(errors_, IsEmpty());
  EXPECT_THAT(GenerateCalls(), SizeIs(1 + 4 * 3 + 1));
  EXPECT_EQ(scratch_.Read("serve"), name_);
}

TEST_P(ServerFailureTest, ReplacesAServerThatKeepsFailing) {
  const auto engine = StartedNamed();
  Fail(GetParam().generate, "status500", /*times=*/100);
  Submit(*engine, Request(1));
  ASSERT_TRUE(RunUntil(*engine, [&] { return !errors_.empty(); }));
  EXPECT_THAT(Message(errors_[0]), HasSubstr("the engine encountered"));
  errors_.clear();
  Tell({{"fault", nullptr}});
  engine->Cancel(1);
  ASSERT_TRUE(RunUntil(*engine, [&] { return engine->version(Lane::kRollout).version == 1; }));
  EXPECT_NE(scratch_.Read("serve"), name_);
}

TEST_P(ServerFailureTest, ReplacesAServerWhoseEngineHasDied) {
  options_.retry_delay = absl::Milliseconds(2);
  options_.server.probe_period = absl::Seconds(1);  // failed calls tell before probes do
  const auto engine = StartedNamed();
  Tell({{"hold_after", 2}});
  Submit(*engine, Request(1, 3));
  ASSERT_TRUE(RunUntilTokens(*engine, 3));  // answers have begun
  Tell({{"crash", true}, {"hold_after", nullptr}});
  ExpectLostAndBack(*engine);
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_P(ServerFailureTest, ReplacesAServerThatDoesNotAnswer) {
  options_.server.probe_timeout = absl::Milliseconds(50);
  const auto engine = StartedNamed();
  Tell({{"hold_after", 0}});
  Submit(*engine, Request(1));
  ASSERT_TRUE(RunUntil(*engine, [&] { return Ask().at("running") == 1; }));
  Fail("/health", "hang", /*times=*/2);
  const absl::Status error = RunUntilError(*engine);
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable) << error;
  EXPECT_THAT(Message(error), HasSubstr("does not answer"));
}

TEST_P(ServerFailureTest, ReplacesAServerThatGeneratesNothing) {
  options_.stall_timeout = absl::Seconds(1);
  const auto engine = StartedNamed();
  Tell({{"hold_after", 0}, {"pings", true}});
  Submit(*engine, Request(1));
  const absl::Status error = RunUntilError(*engine);
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable) << error;
  EXPECT_THAT(Message(error), HasSubstr("no token"));
}

TEST_P(ServerFailureTest, CancelsWaitOnceForAServerThatHangs) {
  options_.abort_timeout = absl::Milliseconds(40);
  const auto engine = StartedNamed();
  Tell({{"hold_after", 0}});
  for (int64_t id = 1; id <= 3; ++id) Submit(*engine, Request(id));
  ASSERT_TRUE(RunUntil(*engine, [&] { return Ask().at("running") == 3; }));
  Fail(GetParam().abort, "hang", /*times=*/100);
  for (int64_t id = 1; id <= 3; ++id) EXPECT_THAT(engine->Cancel(id), SizeIs(1));
  // The first one tells the server four times while it waits.
  EXPECT_TRUE(RunUntil(*engine, [&] {
    const Json log = Ask().at("log");
    return std::ranges::count_if(log, [](const Json& call) {
             return call.at("path") == GetParam().abort;
           }) == 4 + 1 + 1;
  }));
}

TEST_P(ServerFailureTest, ReplacesAServerWhoseReloadFails) {
  const auto engine = StartedNamed();
  Tell({{"hold_after", 2}});
  Submit(*engine, Request(1, 2));
  ASSERT_TRUE(RunUntil(*engine, [&] { return Ask().at("running") == 2; }));
  Fail(GetParam().load, "status500");
  Load(*engine, Lane::kRollout, 2);
  Tell({{"hold_after", nullptr}});
  ExpectLostAndBack(*engine, 2);
}

TEST_P(ServerFailureTest, ReplacesAServerThatDoesNotTakeTheVersion) {
  const auto engine = StartedNamed();
  Fail(GetParam().set_version, "ignored");
  Load(*engine, Lane::kRollout, 2);
  ExpectLostAndBack(*engine, 2);
  EXPECT_THAT(Message(errors_[0]), HasSubstr("weight version is 0.1"));
}

TEST_P(ServerFailureTest, ReplacesAServerThatGeneratesWithAnotherVersion) {
  const auto engine = StartedNamed();
  Fail(GetParam().generate, "old_version");
  Submit(*engine, Request(1));
  ExpectLostAndBack(*engine);
  EXPECT_THAT(Message(errors_[0]), HasSubstr("unknown weight version"));
}

TEST_P(ServerFailureTest, EveryStepOfASwapMayFail) {
  const auto engine = StartedNamed();
  int64_t version = 1;
  for (const std::string& path : GetParam().swap) {
    name_ = scratch_.Read("serve");
    Fail(path, "status500");
    Load(*engine, Lane::kRollout, ++version);
    ExpectLostAndBack(*engine, version);
  }
  for (const char* path : {GetParam().load, GetParam().version}) {
    name_ = scratch_.Read("serve");
    Fail(path, "garbage");
    Load(*engine, Lane::kRollout, ++version);
    ExpectLostAndBack(*engine, version);
  }
}

TEST_P(ServerFailureTest, ALoadMayHang) {
  options_.server.load_timeout = absl::Milliseconds(200);
  const auto engine = StartedNamed();
  Fail(GetParam().load, "hang");
  Load(*engine, Lane::kRollout, 2);
  ExpectLostAndBack(*engine, 2);
}

class SglangFailureTest : public ServerFailureTest {};
INSTANTIATE_TEST_SUITE_P(Kinds, SglangFailureTest, testing::Values(ServerKinds()[1]),
                         ServerKindName);

TEST_P(SglangFailureTest, ALoadMayReportItsFailure) {
  const auto engine = StartedNamed();
  int64_t version = 1;
  for (const char* kind : {"failed", "unsuccessful"}) {
    name_ = scratch_.Read("serve");
    Fail(GetParam().load, kind);
    Load(*engine, Lane::kRollout, ++version);
    ExpectLostAndBack(*engine, version);
  }
}

TEST_P(ServerFailureTest, GivesUpWaitingForAServerThatDoesNotStart) {
  options_.server.start_timeout = absl::Milliseconds(200);
  const auto engine = MakeEngine();
  Fail("/v1/models", "status500", /*times=*/1000);
  Load(*engine, Lane::kRollout, 1);
  EXPECT_EQ(engine->version(Lane::kRollout), (PolicyVersion{-1, -1}));
  const absl::Status error = RunUntilError(*engine);
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(error), HasSubstr("has not started"));
  Tell({{"fault", nullptr}});
  EXPECT_TRUE(RunUntil(*engine, [&] { return engine->version(Lane::kRollout).version == 1; }));
}

TEST_P(ServerFailureTest, LoadsWeightsThatCameWhileTheServerStarted) {
  const auto engine = MakeEngine();
  Fail("/v1/models", "status500", /*times=*/3);
  Load(*engine, Lane::kRollout, 1);
  Load(*engine, Lane::kRollout, 2);
  ASSERT_TRUE(RunUntil(*engine, [&] { return engine->version(Lane::kRollout).version == 2; }));
  Submit(*engine, Request(1));
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_THAT((responses_[{1, 0}].spans), ElementsAre(Span{{0, 2}, 0, 8}));
  EXPECT_THAT(errors_, IsEmpty());
}

}  // namespace
}  // namespace freshet
