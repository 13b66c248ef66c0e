// A RolloutWorker on a fake server.

#include <gmock/gmock.h>

#include <set>
#include <stop_token>

#include "datastore/memory/in_memory_trajectory_store.h"
#include "rollout/worker/rollout_worker.h"
#include "tests/rollout/server_engine/server_fixture.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {
namespace {

// Calls `on_turn` once per turn of the worker.
class SteeredEngine final : public InferenceEngine {
 public:
  SteeredEngine(InferenceEngine& engine, std::function<void()> on_turn)
      : engine_(engine), on_turn_(std::move(on_turn)) {}
  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const override {
    return engine_.Admissible(prompt_tokens, num_samples, sampling, most);
  }
  absl::Status Submit(GenerationRequest request) override {
    return engine_.Submit(std::move(request));
  }
  absl::StatusOr<std::vector<GenerationOutput>> Poll() override { return engine_.Poll(); }
  bool Idle() const override {
    on_turn_();
    return engine_.Idle();
  }
  std::vector<GenerationOutput> Cancel(int64_t id) override { return engine_.Cancel(id); }
  void Pause(bool paused) override { engine_.Pause(paused); }
  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override {
    return engine_.LoadWeights(lane, snapshot);
  }
  PolicyVersion version(Lane lane) const override { return engine_.version(lane); }
  EngineStats stats() const override { return engine_.stats(); }

 private:
  InferenceEngine& engine_;
  const std::function<void()> on_turn_;
};

// Records the stored samples.
class RecordingStore final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override {
    absl::StatusOr<std::vector<absl::Status>> statuses =
        ForwardingTrajectoryStore::PutSamples(samples);
    for (size_t i = 0; statuses.ok() && i < samples.size(); ++i) {
      if ((*statuses)[i].ok()) stored.push_back(samples[i].response);
    }
    return statuses;
  }
  std::vector<std::shared_ptr<const Response>> stored;
};

// B = 2, G = 2, eta = 1 on a store at version 5.
class ServerWorkerTest : public ServerFixture {
 protected:
  ServerWorkerTest() {
    StoreOptions store;
    store.job = "job";
    store.staleness.max = 1;
    store.staleness.groups_per_step = 2;
    store.staleness.max_in_flight = 100;
    store.group_size = 2;
    store.last_step = 100;
    store.capacity_groups = 1000;
    store.max_queued_prompts = 100;
    StoreOrigin origin;
    origin.policy = {0, 5};
    auto created = InMemoryTrajectoryStore::Create(store, origin, clock_);
    EXPECT_TRUE(created.ok()) << created.status();
    memory_ = *std::move(created);
    store_ = std::make_unique<RecordingStore>(*memory_);
    worker_options_.group_size = 2;
    worker_options_.max_prompt_tokens = 2;
    worker_options_.request_prefix = "job/rollout/1/";
    worker_options_.idle_wait = absl::ZeroDuration();
    worker_options_.sampling.max_new_tokens = 6;
    worker_options_.most_engine_failures = 8;
  }

  void PutPrompts(int64_t n) {
    std::vector<Prompt> prompts(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      prompts[static_cast<size_t>(i)].ordinal = i;
      prompts[static_cast<size_t>(i)].prompt_ids = {1, static_cast<int32_t>(i)};
    }
    ASSERT_TRUE(store_->PutPrompts(prompts).ok());
  }
  void Publish(int64_t version) {
    const WeightSnapshot weights = ServedWeights(ServedConfig(), {0, version});
    ASSERT_TRUE(subscriber_->Prepare(weights.manifest, weights.bytes).ok());
    CommitReceipt receipt;
    receipt.policy = {0, version};
    receipt.step = version;
    receipt.content_hash = weights.manifest.content_hash;
    ASSERT_TRUE(subscriber_->Activate(receipt).ok());
  }
  // Runs a worker until `done`, with `act` before each turn.
  absl::Status Run(
      ServerEngine& server, const std::function<bool()>& done,
      const std::function<void()>& act = [] {}) {
    std::stop_source stop;
    int turns = 0;
    SteeredEngine engine(server, [&] {
      clock_.Advance(absl::Milliseconds(1));
      act();
      if (done() || ++turns >= kMostTurns) stop.request_stop();
    });
    RolloutWorker worker(*store_, engine, subscriber_, clock_, worker_options_);
    const absl::Status status = worker.Run(stop.get_token());
    counters_ = worker.counters();
    EXPECT_LT(turns, kMostTurns) << "the worker never got there: " << counters_.last_wait_reason;
    return status;
  }
  void ExpectWhole(size_t samples) {
    ASSERT_EQ(store_->stored.size(), samples);
    for (const auto& response : store_->stored) {
      EXPECT_EQ(response->response_ids.size(), 6U);
      EXPECT_EQ(response->spans.back().end, 6);
    }
  }

  static constexpr int kMostTurns = 20'000;
  std::unique_ptr<InMemoryTrajectoryStore> memory_;
  std::unique_ptr<RecordingStore> store_;
  std::shared_ptr<WeightSubscriber> subscriber_ = std::make_shared<WeightSubscriber>();
  RolloutOptions worker_options_;
  RolloutCounters counters_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ServerWorkerTest, testing::ValuesIn(ServerKinds()), ServerKindName);

TEST_P(ServerWorkerTest, GeneratesWhatTheGateAdmits) {
  PutPrompts(6);
  Publish(5);
  const auto engine = MakeEngine();
  ASSERT_TRUE(Run(*engine, [&] { return store_->stored.size() == 8; }).ok());
  ExpectWhole(8);
  EXPECT_EQ(counters_.engine_failures, 0);
}

TEST_P(ServerWorkerTest, ReturnsLeasesOfALostServerAndGeneratesThemOnTheNext) {
  PutPrompts(4);
  Publish(5);
  Tell({{"hold_after", 3}});
  const auto engine = MakeEngine();
  bool crashed = false;
  const absl::Status status = Run(
      *engine, [&] { return store_->stored.size() == 8; },
      [&] {
        if (crashed || Ask().at("running") < 8) return;
        Tell({{"crash", true}, {"hold_after", nullptr}});
        crashed = true;
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(crashed);
  ExpectWhole(8);
  EXPECT_GE(counters_.engine_failures, 1);
  EXPECT_EQ(store_->Stats()->groups[static_cast<int>(GroupState::kDead)], 0);
}

TEST_P(ServerWorkerTest, AReloadThatFailsCostsNoPrompt) {
  PutPrompts(4);
  Publish(4);
  Tell({{"hold_after", 3}});
  const auto engine = MakeEngine();
  bool published = false;
  const absl::Status status = Run(
      *engine, [&] { return store_->stored.size() == 8; },
      [&] {
        if (published || Ask().at("running") < 4) return;
        Tell({{"fault", {{"path", GetParam().load}, {"kind", "status500"}}},
              {"hold_after", nullptr}});
        published = true;
        Publish(5);
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(published);
  ExpectWhole(8);
}

TEST_P(ServerWorkerTest, RefusesAJobThatItsServerIsTooShortFor) {
  PutPrompts(1);
  Publish(5);
  worker_options_.max_sample_tokens = 65;
  const auto engine = MakeEngine();
  const absl::Status status = Run(*engine, [] { return false; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const int64_t limit = 64 - GetParam().protocol().traits().reserved_tokens;
  EXPECT_EQ(engine->stats().max_tokens, limit);
  EXPECT_THAT(Message(status), testing::HasSubstr("a sample of the job may have 65 tokens"));
  EXPECT_THAT(Message(status), testing::HasSubstr(StrCat("server's limit is ", limit)));
  EXPECT_TRUE(store_->stored.empty());
}

TEST_P(ServerWorkerTest, ReturnsTokensWhenItStops) {
  PutPrompts(2);
  Publish(5);
  Tell({{"hold_after", 3}});
  auto engine = MakeEngine();
  ASSERT_TRUE(Run(*engine, [&] { return Ask().at("running") == 4; }).ok());
  EXPECT_TRUE(store_->stored.empty());
  const auto leased = store_->LeasePrompts({"another", "", {0, 5}, 2});
  ASSERT_TRUE(leased.ok()) << leased.status();
  ASSERT_EQ(leased->leases.size(), 2U);
  for (const GroupLease& lease : leased->leases) {
    for (const Response& partial : lease.partials) EXPECT_EQ(partial.response_ids.size(), 3U);
  }
}

}  // namespace
}  // namespace freshet
