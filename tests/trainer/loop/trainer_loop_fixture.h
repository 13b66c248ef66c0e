#ifndef FRESHET_TESTS_TRAINER_LOOP_TRAINER_LOOP_FIXTURE_H_
#define FRESHET_TESTS_TRAINER_LOOP_TRAINER_LOOP_FIXTURE_H_

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/forwarding_trajectory_store.h"
#include "trainer/loop/trainer_loop.h"

namespace freshet {

// Records the events around a trainer loop in order. Thread-safe.
class Journal {
 public:
  void Add(std::string event) {
    const MutexLock lock(mu_);
    events_.push_back(std::move(event));
  }
  std::vector<std::string> events() const {
    const MutexLock lock(mu_);
    return events_;
  }

 private:
  mutable Mutex mu_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
};

// A learner whose weights are a text that names the last trained step.
class FakeLearner final : public SingleProcessLearner {
 public:
  explicit FakeLearner(Journal& journal) : journal_(journal) {}
  absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                            const std::vector<TrainGroup>& groups) override {
    journal_.Add(StrCat("train ", step));
    if (fails_at == step) return FailedPrecondition("loss of step ", step, " is not finite");
    if (loses_state_at == step) {
      state_lost_ = true;
      return absl::UnavailableError("rank 1 was ended by signal 9");
    }
    if (loses_ranks_at == step) {
      lost_ranks_ = {"rank 2 was ended by signal 9", "rank 1 was ended by signal 9"};
      return absl::UnavailableError(lost_ranks_.back());
    }
    if (on_train) on_train(step);
    if (stopped_) return absl::CancelledError("the trainer ends");
    arena_ = StrCat("weights of step ", step);
    TrainStepResult result;
    result.tokens_trained = static_cast<int64_t>(groups.size());
    result.checkpoint_seconds = checkpoint_seconds;
    return result;
  }
  absl::StatusOr<std::string_view> Arena() const override { return arena_; }
  absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const override {
    auto state = std::make_shared<LearnerState>();
    StateTensor tensor{"w", Dtype::kU8, {static_cast<int64_t>(arena_.size())}, {}, {}};
    tensor.bytes.resize(arena_.size());
    std::memcpy(tensor.bytes.data(), arena_.data(), arena_.size());
    state->model.push_back(tensor);
    state->optimizer.push_back(std::move(tensor));
    state->copy = [this] { journal_.Add("copy"); };
    return std::shared_ptr<const LearnerState>(std::move(state));
  }
  bool StateLost() const override { return state_lost_; }
  std::vector<std::string> LostRanks() const override { return lost_ranks_; }
  void Stop() override { stopped_ = waits_for_ranks; }
  bool waits_for_ranks = false;
  std::optional<int64_t> fails_at, loses_state_at, loses_ranks_at;
  std::function<void(int64_t)> on_train;
  double checkpoint_seconds = 0;  // of every step

 private:
  Journal& journal_;
  bool state_lost_ = false;
  bool stopped_ = false;
  std::vector<std::string> lost_ranks_;
  std::string arena_ = "weights of step 0";
};

class JournalPoints final : public FaultPoints {
 public:
  explicit JournalPoints(Journal& journal) : journal_(journal) {}
  void Reach(std::string_view point) override {
    journal_.Add(StrCat("point ", point));
    if (on_reach) on_reach(point);
  }
  std::function<void(std::string_view)> on_reach;

 private:
  Journal& journal_;
};

class JournalTransport final : public WeightTransport {
 public:
  JournalTransport(Journal& journal, std::vector<PolicyVersion>& published)
      : journal_(journal), published_(published) {}
  int64_t Publish(const CommittedWeights& version) override {
    const int64_t number = version.receipt.policy.version;
    if (on_publish) on_publish(number);
    const WeightBytes& bytes = version.snapshot.bytes;
    const std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    EXPECT_EQ(text, StrCat("weights of step ", number));
    journal_.Add(StrCat("publish ", number));
    published_.push_back(version.receipt.policy);
    return 1;
  }
  std::function<void(int64_t)> on_publish;

 private:
  Journal& journal_;
  std::vector<PolicyVersion>& published_;
};

class JournalStore final : public ForwardingTrajectoryStore {
 public:
  JournalStore(TrajectoryStore& store, Journal& journal)
      : ForwardingTrajectoryStore(store), journal_(journal) {}
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override {
    journal_.Add(StrCat("CommitStep ", step));
    return ForwardingTrajectoryStore::CommitStep(epoch, step, ordinals, content_hash);
  }
  absl::Status MarkDurable(int64_t epoch, int64_t version, const std::string& sha256) override {
    journal_.Add(StrCat("MarkDurable ", version));
    return ForwardingTrajectoryStore::MarkDurable(epoch, version, sha256);
  }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    if (on_wait) on_wait();
    return ForwardingTrajectoryStore::AwaitChange(topic, seen, timeout);
  }
  std::function<void()> on_wait;

 private:
  Journal& journal_;
};

class JournalObserver final : public TrainerObserver {
 public:
  explicit JournalObserver(Journal& journal) : journal_(journal) {}
  absl::Status OnCommitted() override {
    journal_.Add("OnCommitted");
    return committed_status;
  }
  absl::Status OnStep(const FinishedStep& report, const WeightSnapshot& weights) override {
    journal_.Add(StrCat("OnStep ", report.step));
    EXPECT_EQ(report.policy.version, report.step);
    EXPECT_EQ(weights.manifest.policy, report.policy);
    EXPECT_EQ(report.result.tokens_trained, 2);
    EXPECT_EQ(report.groups->size(), 2U);
    if (on_step) on_step(report.step);
    last = report;
    last.groups = nullptr;
    return absl::OkStatus();
  }
  void OnStalled(const std::string& reason, absl::Duration waited) override {
    stalls.emplace_back(reason, waited);
    if (on_stalled) on_stalled();
  }
  void OnRest() override { ++rests; }
  std::function<void()> on_stalled;
  absl::Status committed_status;
  std::function<void(int64_t)> on_step;
  std::vector<std::pair<std::string, absl::Duration>> stalls;
  int rests = 0;
  FinishedStep last;  // without its groups

 private:
  Journal& journal_;
};

// A trainer loop over the in-memory store with B = 2, G = 2, eta = 3, so version 0 can generate
// four steps.
class TrainerLoopFixture : public testing::Test {
 protected:
  TrainerLoopFixture() {
    store_options_.job = "job";
    store_options_.staleness.max = 3;
    store_options_.staleness.groups_per_step = 2;
    store_options_.staleness.max_in_flight = 100;
    store_options_.group_size = 2;
    store_options_.last_step = 100;
    store_options_.capacity_groups = 1000;
    store_options_.max_queued_prompts = 100;
    options_.job = "job";
    options_.steps = 4;
    options_.checkpoint_root = dir_.File("checkpoints");
    options_.checkpoint_files = {{"config.json", "{}"}};
    options_.seed = 9;
    options_.wait_slice = absl::ZeroDuration();
  }

  // Created on first use, so that a test can set the options before.
  JournalStore& store() {
    if (store_ == nullptr) {
      auto memory = InMemoryTrajectoryStore::Create(store_options_, origin_, clock_);
      EXPECT_TRUE(memory.ok()) << memory.status();
      memory_ = *std::move(memory);
      store_ = std::make_unique<JournalStore>(*memory_, journal_);
    }
    return *store_;
  }
  InMemoryTrajectoryStore* memory() {
    store();
    return memory_.get();
  }
  TrainerLoop& loop() {
    if (loop_ == nullptr) {
      loop_ = std::make_unique<TrainerLoop>(store(), learner_, publisher_, observer_, clock_,
                                            points_, options_);
    }
    return *loop_;
  }
  // Generates and scores groups at `version`. Sample i gets reward i; with `same`, all get 1.
  void Produce(int64_t groups, int64_t version = 0, bool same = false) {
    std::vector<Prompt> prompts(static_cast<size_t>(groups));
    for (Prompt& prompt : prompts) {
      prompt.ordinal = next_ordinal_++;
      prompt.prompt_ids = {1};
    }
    ASSERT_TRUE(store().PutPrompts(prompts).ok());
    const auto leased = store().LeasePrompts({"w", "", {0, version}, groups});
    ASSERT_TRUE(leased.ok()) << leased.status();
    ASSERT_EQ(leased->leases.size(), prompts.size()) << leased->reason;
    for (const GroupLease& lease : leased->leases) {
      for (const int32_t index : lease.missing) {
        const Response response = {
            {3, 4}, {-1.0F, -1.0F}, {1, 1}, {{{0, version}, 0, 2}}, FinishReason::kStop, {}, {}};
        ASSERT_TRUE(store().PutSample(lease.token, index, response).ok());
      }
    }
    const auto rows = store().LeaseRows(Task::kScore, "r", 1000);
    for (const RowLease& row : *rows) {
      auto score = std::make_shared<Score>();
      score->reward = same ? 1.0 : row.sample.key.index;
      ASSERT_TRUE(store().PutFields(Task::kScore, row.token, {score}).ok());
    }
  }
  // Commits one step per entry of `arenas` as an earlier trainer with these weights.
  void CommitAsAnother(const std::vector<std::string>& arenas) {
    const auto epoch = memory()->OpenEpoch("former", {0, 0});
    ASSERT_TRUE(epoch.ok()) << epoch.status();
    for (size_t i = 0; i < arenas.size(); ++i) {
      const int64_t step = static_cast<int64_t>(i) + 1;
      const auto batch = memory()->NextBatch(epoch->epoch, step);
      ASSERT_TRUE(batch.ok() && batch->ready) << batch.status();
      std::vector<int64_t> ordinals;
      for (const TrainGroup& group : batch->groups) ordinals.push_back(group.ordinal);
      WeightPublisher former({}, {});
      ASSERT_TRUE(former.Stage({0, step}, epoch->epoch, arenas[i]).ok());
      const std::string& hash = former.staged().manifest.content_hash;
      ASSERT_TRUE(memory()->CommitStep(epoch->epoch, step, ordinals, hash).ok());
    }
  }
  absl::Status StartAndRun(bool save_loaded = false) {
    const absl::Status started = loop().Start(save_loaded);
    return started.ok() ? loop().Run(stop_.get_token()) : started;
  }
  // Steps with a checkpoint on disk.
  std::vector<int64_t> Saved() const {
    std::vector<int64_t> steps;
    for (int64_t step = 0; step < 20; ++step) {
      if (dir_.Has(StrCat("checkpoints/step-", step))) steps.push_back(step);
    }
    return steps;
  }
  // The events up to the end of the publication in flight.
  std::vector<std::string> Events() {
    publisher_.AwaitPublished();
    return journal_.events();
  }
  int64_t Place(const std::string& event) {
    const std::vector<std::string> events = Events();
    for (size_t i = 0; i < events.size(); ++i) {
      if (events[i] == event) return static_cast<int64_t>(i);
    }
    ADD_FAILURE() << "never happened: " << event;
    return -1;
  }
  int64_t CountOf(const std::string& event) {
    int64_t count = 0;
    for (const std::string& each : Events()) count += each == event ? 1 : 0;
    return count;
  }
  // The events with these names, in order.
  std::vector<std::string> Only(const std::vector<std::string>& names) {
    std::vector<std::string> kept;
    for (const std::string& event : Events()) {
      for (const std::string& name : names) {
        if (event.starts_with(name)) kept.push_back(event);
      }
    }
    return kept;
  }

  TestDirectory dir_;
  FakeClock clock_;
  Journal journal_;
  StoreOptions store_options_;
  StoreOrigin origin_;
  TrainerLoopOptions options_;
  FakeLearner learner_{journal_};
  JournalPoints points_{journal_};
  JournalObserver observer_{journal_};
  std::vector<PolicyVersion> published_;
  const std::shared_ptr<JournalTransport> transport_ =
      std::make_shared<JournalTransport>(journal_, published_);
  WeightPublisher publisher_{{}, {transport_}};
  std::stop_source stop_;
  int64_t next_ordinal_ = 0;

 private:
  std::unique_ptr<InMemoryTrajectoryStore> memory_;
  std::unique_ptr<JournalStore> store_;
  std::unique_ptr<TrainerLoop> loop_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_LOOP_TRAINER_LOOP_FIXTURE_H_
