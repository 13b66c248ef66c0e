#include "rollout/server_engine/weight_transfer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "collective/nccl_backend.h"
#include "model/dtype.h"
#include "tests/collective/fake_nccl.h"
#include "tests/rollout/server_engine/server_fixture.h"
#include "tests/rollout/server_engine/transfer_workers.h"

namespace freshet {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kWorkers = 2;
constexpr size_t kSmallBuffer = 300;  // bytes; smaller than the embedding of ServedConfig

// Paths of the calls that load weights into a running server.
std::vector<std::string> RoundPaths(bool join) {
  std::vector<std::string> paths;
  if (join) paths.push_back("/is_paused");
  paths.push_back("/pause");
  if (join) {
    paths.insert(paths.end(), {"/shutdown_weight_transfer_engine", "/get_world_size",
                               "/init_weight_transfer_engine"});
  }
  paths.insert(paths.end(),
               {"/start_weight_update", "/update_weights", "/finish_weight_update",
                "/reset_prefix_cache", "/update_weight_version", "/weight_info", "/resume"});
  return paths;
}

// The tensors of a version in the order of the arena, in bf16.
std::string ServedBytes(int64_t version) {
  const WeightSnapshot snapshot = ServedWeights(ServedConfig(), {0, version});
  std::string bytes;
  for (const WeightEntry& entry : snapshot.manifest.entries) {
    int64_t elements = 1;
    for (const int64_t dimension : entry.shape) elements *= dimension;
    for (int64_t i = 0; i < elements; ++i) {
      float value = 0;
      std::memcpy(&value, snapshot.bytes->data() + entry.offset_bytes + i * 4, sizeof(value));
      const uint16_t rounded = RoundToBf16(value);
      bytes.append(reinterpret_cast<const char*>(&rounded), sizeof(rounded));
    }
  }
  return bytes;
}

// A fake vLLM server with two workers, whose engine is rank 0 of the fake NCCL. A transfer that
// fails is tried again at once.
class WeightTransferTest : public ServerFixture {
 protected:
  WeightTransferTest() {
    transfer_options_.buffer_bytes = kSmallBuffer;
    transfer_options_.first_delay = absl::ZeroDuration();
  }
  void SetUp() override {
    ServerFixture::SetUp();
    auto backend = OpenNcclBackend({FRESHET_FAKE_NCCL, FRESHET_FAKE_NCCL});
    ASSERT_TRUE(backend.ok()) << backend.status();
    transfer_ = *backend;
    workers_ = std::make_unique<TransferWorkers>(address(), FRESHET_FAKE_NCCL);
    Tell({{"workers", kWorkers}});
    engine_ = Started();
    name_ = scratch_.Read("serve");
    seen_ = ControlCalls().size();
  }
  void TearDown() override {
    engine_ = nullptr;
    workers_ = nullptr;
    FakeNcclFault(FakeFault::kNone, 0, 0);
    EXPECT_EQ(FakeNcclLiveObjects(), 0) << "something is not freed";
  }

  // Paths since the last call.
  std::vector<std::string> NewCalls() {
    std::vector<std::string> paths = ControlCalls();
    paths.erase(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(seen_));
    seen_ += paths.size();
    return paths;
  }
  std::vector<int32_t> Generate(int64_t version) {
    responses_.clear();
    Submit(*engine_, Request(40));
    EXPECT_TRUE(RunUntilIdle(*engine_));
    const Response& response = responses_[{40, 0}];
    EXPECT_THAT(response.spans, ElementsAre(Span{{0, version}, 0, 8}));
    return response.response_ids;
  }
  // Loads `version`, which loses the server, and waits for the next server. Returns the error.
  std::string LoadLosesTheServer(int64_t version) {
    Load(*engine_, Lane::kRollout, version);
    const absl::Status error = RunUntilError(*engine_);
    EXPECT_TRUE(absl::IsUnavailable(error)) << error;
    EXPECT_NE(scratch_.Read("serve"), name_) << "the supervisor was told";
    EXPECT_TRUE(
        RunUntil(*engine_, [&] { return engine_->version(Lane::kRollout).version == version; }));
    name_ = scratch_.Read("serve");
    Generate(version);
    NewCalls();
    return Message(error);
  }

  std::unique_ptr<TransferWorkers> workers_;
  std::unique_ptr<ServerEngine> engine_;
  std::string name_;  // of the server
  size_t seen_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Kinds, WeightTransferTest, testing::Values(ServerKinds()[0]),
                         ServerKindName);

TEST_P(WeightTransferTest, EveryVersionTravelsThroughOneGroup) {
  Tell({{"hold_after", 2}});
  Submit(*engine_, Request(1));
  ASSERT_TRUE(RunUntil(*engine_, [&] { return Ask().at("running") == 1; }));
  Load(*engine_, Lane::kRollout, 2);
  EXPECT_THAT(NewCalls(), ElementsAreArray(RoundPaths(/*join=*/true)));
  Tell({{"hold_after", nullptr}});
  ASSERT_TRUE(RunUntilIdle(*engine_));
  EXPECT_THAT((responses_[{1, 0}].spans), ElementsAre(Span{{0, 1}, 0, 2}, Span{{0, 2}, 2, 8}));
  Load(*engine_, Lane::kRollout, 3);
  EXPECT_THAT(NewCalls(), ElementsAreArray(RoundPaths(/*join=*/false)));

  const std::vector<ReceivedWeights> updates = workers_->updates();
  ASSERT_THAT(updates, SizeIs(2));
  EXPECT_EQ(updates[0].bytes, ServedBytes(2));
  EXPECT_EQ(updates[1].bytes, ServedBytes(3));
  EXPECT_THAT(updates[1].broadcasts, SizeIs(Gt(3U)));
  EXPECT_EQ(updates[1].names.front(), "model.embed_tokens.weight");
  EXPECT_EQ(workers_->groups(), 1);
  EXPECT_EQ(scratch_.Read("serve"), name_);
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_P(WeightTransferTest, LanesTakeTurns) {
  Load(*engine_, Lane::kEvaluation, 5);
  GenerationRequest request = Request(1);
  request.lane = Lane::kEvaluation;
  Submit(*engine_, std::move(request));
  ASSERT_TRUE(RunUntilIdle(*engine_));
  EXPECT_THAT((responses_[{1, 0}].spans), ElementsAre(Span{{0, 5}, 0, 8}));
  Generate(1);
  const std::vector<ReceivedWeights> updates = workers_->updates();
  ASSERT_THAT(updates, SizeIs(2));
  EXPECT_EQ(updates[0].bytes, ServedBytes(5));
  EXPECT_EQ(updates[1].bytes, ServedBytes(1));
}

TEST_P(WeightTransferTest, AServerThatRestartsGeneratesTheSame) {
  Load(*engine_, Lane::kRollout, 2);
  const std::vector<int32_t> sent = Generate(2);
  Tell({{"crash", true}});
  ASSERT_TRUE(absl::IsUnavailable(RunUntilError(*engine_)));
  ASSERT_TRUE(RunUntil(*engine_, [&] { return engine_->version(Lane::kRollout).version == 2; }));
  EXPECT_EQ(Generate(2), sent) << "from the folder";
  NewCalls();
  Load(*engine_, Lane::kRollout, 3);
  EXPECT_THAT(NewCalls(), ElementsAreArray(RoundPaths(/*join=*/true)));
  EXPECT_EQ(workers_->groups(), 2);
  EXPECT_EQ(workers_->updates().back().bytes, ServedBytes(3));
  Generate(3);
}

TEST_P(WeightTransferTest, AnErrorOfAWorkerLosesTheServer) {
  workers_->FailNext("update", "CUDA error: out of memory");
  const std::string error = LoadLosesTheServer(2);
  EXPECT_THAT(error, HasSubstr("/update_weights with 500"));
  EXPECT_THAT(error, HasSubstr("CUDA error: out of memory"));
  Load(*engine_, Lane::kRollout, 3);
  EXPECT_THAT(NewCalls(), ElementsAreArray(RoundPaths(/*join=*/true)));
  EXPECT_EQ(workers_->groups(), 2);
  Generate(3);
}

TEST_P(WeightTransferTest, AServerThatCannotJoinIsReportedAtOnce) {
  workers_->FailNext("init", "Found no NVIDIA driver on your system.");
  const std::string error = LoadLosesTheServer(2);
  EXPECT_THAT(error, HasSubstr("/init_weight_transfer_engine with 500"));
  EXPECT_THAT(error, HasSubstr("Found no NVIDIA driver"));
  EXPECT_EQ(workers_->groups(), 0);
}

TEST_P(WeightTransferTest, AnErrorOfNcclEndsTheCall) {
  FakeNcclFault(FakeFault::kFail, /*rank=*/0, /*operation=*/2);
  const std::string error = LoadLosesTheServer(2);
  EXPECT_THAT(error, HasSubstr("sending weights: NCCL"));
  EXPECT_THAT(error, HasSubstr("fake detail"));
  FakeNcclFault(FakeFault::kRefuseToConnect, 0, 0);
  EXPECT_THAT(LoadLosesTheServer(3), HasSubstr("the group with the server's workers: NCCL"));
}

class WeightTransferDeadlineTest : public WeightTransferTest {
 protected:
  WeightTransferDeadlineTest() { options_.server.load_timeout = absl::Milliseconds(300); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, WeightTransferDeadlineTest, testing::Values(ServerKinds()[0]),
                         ServerKindName);

TEST_P(WeightTransferDeadlineTest, AWorkerThatHangsLosesTheServer) {
  FakeNcclFault(FakeFault::kHang, /*rank=*/1, /*operation=*/2);
  EXPECT_THAT(LoadLosesTheServer(2),
              AnyOf(HasSubstr("/update_weights"), HasSubstr("sending weights")));
}

TEST_P(WeightTransferDeadlineTest, AWorkerThatDoesNotJoinLosesTheServer) {
  FakeNcclFault(FakeFault::kHangToConnect, 1, 0);
  EXPECT_THAT(LoadLosesTheServer(2), AnyOf(HasSubstr("/init_weight_transfer_engine"),
                                           HasSubstr("the group with the server's workers")));
}

class WeightTransferDelayTest : public WeightTransferTest {
 protected:
  WeightTransferDelayTest() { transfer_options_.first_delay = absl::Minutes(10); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, WeightTransferDelayTest, testing::Values(ServerKinds()[0]),
                         ServerKindName);

TEST_P(WeightTransferDelayTest, LanesTakeTurnsAfterOneLostServer) {
  Fail("/init_weight_transfer_engine", "status500", /*times=*/1000);
  Load(*engine_, Lane::kEvaluation, 5);
  GenerationRequest request = Request(1);
  request.lane = Lane::kEvaluation;
  Submit(*engine_, std::move(request));
  Submit(*engine_, Request(2));
  ASSERT_TRUE(RunUntilIdle(*engine_));
  EXPECT_THAT((responses_[{1, 0}].spans), ElementsAre(Span{{0, 5}, 0, 8}));
  EXPECT_THAT((responses_[{2, 0}].spans), ElementsAre(Span{{0, 1}, 0, 8}));
  EXPECT_THAT(errors_, SizeIs(1));
  EXPECT_THAT(workers_->updates(), IsEmpty());
}

TEST_P(WeightTransferDelayTest, EachFailureDoublesTheDelayAndASuccessEndsIt) {
  const auto fails = [this](int64_t version) {
    Fail("/init_weight_transfer_engine", "status500");
    LoadLosesTheServer(version);
  };
  // Whether a version is broadcast.
  const auto broadcasts = [this](int64_t version) {
    Load(*engine_, Lane::kRollout, version);
    Generate(version);
    return std::ranges::count(NewCalls(), "/collective_rpc") == 0;
  };
  fails(2);
  clock_.Advance(absl::Minutes(10));
  fails(3);
  clock_.Advance(absl::Minutes(15));
  EXPECT_FALSE(broadcasts(4));
  clock_.Advance(absl::Minutes(5));
  EXPECT_TRUE(broadcasts(5));
  workers_->FailNext("update", "CUDA error: out of memory");
  LoadLosesTheServer(6);
  clock_.Advance(absl::Minutes(9));
  EXPECT_FALSE(broadcasts(7));
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(broadcasts(8));
  EXPECT_THAT(errors_, SizeIs(3));
}

TEST_P(WeightTransferTest, EveryCallMayFail) {
  int64_t version = 1;
  for (const std::string& path : RoundPaths(/*join=*/true)) {
    Fail(path, "status500");
    EXPECT_THAT(LoadLosesTheServer(++version), HasSubstr(path));
  }
  for (const std::string& path : RoundPaths(/*join=*/true)) {
    if (path == "/pause" || path == "/resume" || path == "/reset_prefix_cache" ||
        path == "/update_weight_version") {
      continue;  // their answers say nothing
    }
    Fail(path, "garbage");
    LoadLosesTheServer(++version);
  }
}

TEST_P(WeightTransferTest, ANewProcessTakesTheServerOver) {
  Load(*engine_, Lane::kRollout, 2);
  engine_ = MakeEngine("b");
  NewCalls();
  Load(*engine_, Lane::kRollout, 3);
  EXPECT_EQ(engine_->version(Lane::kRollout).version, 3);
  EXPECT_EQ(scratch_.Read("serve"), name_);
  EXPECT_THAT(NewCalls(), ElementsAreArray(RoundPaths(/*join=*/true)));
  Generate(3);
}

TEST_P(WeightTransferTest, AServerThatWasLeftPausedIsReplaced) {
  Load(*engine_, Lane::kRollout, 2);
  engine_ = MakeEngine("b");
  const auto calls = runtime::OpenHttpCalls(address());
  ASSERT_TRUE(calls.ok()) << calls.status();
  const auto paused = BufferedCalls(**calls).Await(
      PauseVllm(/*recompute_kv=*/false).call);  // by the former process
  ASSERT_TRUE(paused.ok()) << paused.status();
  NewCalls();
  Load(*engine_, Lane::kRollout, 3);
  ASSERT_TRUE(RunUntil(*engine_, [&] { return engine_->version(Lane::kRollout).version == 3; }));
  EXPECT_NE(scratch_.Read("serve"), name_);
  EXPECT_THAT(NewCalls(), ElementsAre("/is_paused", "/update_weight_version", "/weight_info"));
  Generate(3);
}

}  // namespace
}  // namespace freshet
