#ifndef FRESHET_TESTS_ROLLOUT_WORKER_ROLLOUT_WORKER_FIXTURE_H_
#define FRESHET_TESTS_ROLLOUT_WORKER_ROLLOUT_WORKER_FIXTURE_H_

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/worker/episode_runner.h"
#include "rollout/worker/rollout_worker.h"
#include "tests/contract/weight_version.h"
#include "tests/rollout/worker/fake_inference_engine.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/forwarding_evaluation_store.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {

// The in-memory store with injectable failures and call counters.
class WatchedStore final : public ForwardingTrajectoryStore {
 public:
  explicit WatchedStore(TrajectoryStore& store)
      : ForwardingTrajectoryStore(store), answers(store.evaluations()) {}
  EvaluationStore& evaluations() override { return answers; }
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override {
    ++lease_calls;
    requests.push_back(request);
    if (!lease_status.ok()) return lease_status;
    return ForwardingTrajectoryStore::LeasePrompts(request);
  }
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override {
    if (on_renew) on_renew();
    if (!renew_status.ok()) return renew_status;
    return ForwardingTrajectoryStore::RenewLeases(worker, tokens);
  }
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override {
    ++put_calls;
    counted_at_puts.push_back(Stats()->generation.tokens);
    if (!put_status.ok()) return put_status;
    if (!sample_status.ok()) return std::vector<absl::Status>(samples.size(), sample_status);
    return ForwardingTrajectoryStore::PutSamples(samples);
  }
  absl::Status CountGeneration(const GenerationTotals& added) override {
    counts.push_back(added);
    if (!count_status.ok()) return count_status;
    return ForwardingTrajectoryStore::CountGeneration(added);
  }
  absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                           const std::vector<Response>& partials) override {
    ++return_calls;
    return ForwardingTrajectoryStore::ReturnLease(token, indices, partials);
  }
  absl::Status FailLease(int64_t token, const std::string& reason) override {
    ++fail_calls;
    return ForwardingTrajectoryStore::FailLease(token, reason);
  }
  absl::Status HandBackLease(int64_t token, const std::string& reason) override {
    ++hand_back_calls;
    return ForwardingTrajectoryStore::HandBackLease(token, reason);
  }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    ++waits;
    if (on_wait) on_wait();
    if (ChangeCount(topic) > seen) ++waits_without_effect;
    return ForwardingTrajectoryStore::AwaitChange(topic, seen, timeout);
  }
  absl::Status lease_status;
  absl::Status renew_status;
  absl::Status put_status;     // returned by the call
  absl::Status sample_status;  // returned for each sample
  absl::Status count_status;
  std::function<void()> on_wait;
  std::function<void()> on_renew;  // also called on the thread of the worker's LeaseRenewer
  std::vector<LeaseRequest> requests;
  std::vector<GenerationTotals> counts;  // arguments of all calls
  std::vector<int64_t> counted_at_puts;  // the store's tokens at each put
  ForwardingEvaluationStore answers;
  int lease_calls = 0;
  int put_calls = 0;
  int return_calls = 0;
  int fail_calls = 0;
  int hand_back_calls = 0;
  int waits = 0;
  int waits_without_effect = 0;  // waits that return at once
};

// A worker with a scripted engine on a store at version 5, with B = 2, G = 2, eta = 1. Run()
// executes on the test's thread and is steered by the engine's hooks.
class RolloutWorkerFixture : public testing::Test {
 protected:
  RolloutWorkerFixture() {
    StoreOptions options;
    options.job = "job";
    options.staleness.max = 1;
    options.staleness.groups_per_step = 2;
    options.staleness.max_in_flight = 100;
    options.group_size = 2;
    options.last_step = 100;
    options.capacity_groups = 1000;
    options.max_queued_prompts = 100;
    options.lease_ttl = kTtl;
    StoreOrigin origin;
    origin.policy = {0, 5};
    MakeStore(options, origin);
    worker_options_.group_size = 2;
    worker_options_.max_prompt_tokens = 2;
    worker_options_.request_prefix = "job/rollout/1/";
    worker_options_.seed = 77;
    worker_options_.lease_ttl = kTtl;
    worker_options_.idle_wait = absl::ZeroDuration();
    worker_options_.sampling.max_new_tokens = 16;
  }

  void MakeStore(const StoreOptions& options, const StoreOrigin& origin) {
    auto created = InMemoryTrajectoryStore::Create(options, origin, clock_);
    ASSERT_TRUE(created.ok()) << created.status();
    store_ = std::make_unique<WatchedStore>(**created);
    memory_ = *std::move(created);
  }

  void PutPrompts(int64_t n) {
    std::vector<Prompt> prompts(static_cast<size_t>(n));
    for (Prompt& prompt : prompts) {
      prompt.ordinal = next_ordinal_++;
      prompt.prompt_ids = {1, static_cast<int32_t>(prompt.ordinal)};
    }
    const auto reply = store_->PutPrompts(prompts);
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  // Delivers weights of version {0, `version`} to the worker.
  void Publish(int64_t version) { PublishAt({0, version}); }
  void PublishAt(const PolicyVersion& policy) {
    const VersionForTest made = MakeVersion(policy, 1, 100, 64);
    ASSERT_TRUE(subscriber_->Prepare(made.manifest, made.bytes).ok());
    ASSERT_TRUE(subscriber_->Activate(made.receipt).ok());
  }
  RolloutWorker& worker() {
    if (worker_ == nullptr) {
      worker_ = std::make_unique<RolloutWorker>(*store_, engine_, subscriber_, clock_,
                                                worker_options_, episodes_.get());
    }
    return *worker_;
  }
  // Runs the worker until `done`, for at most 2000 turns.
  absl::Status RunUntil(const std::function<bool()>& done) {
    std::stop_source stop;
    int turns = 0;
    engine_.on_turn = [&] {
      if (done() || ++turns >= 2000) stop.request_stop();
    };
    const absl::Status status = worker().Run(stop.get_token());
    EXPECT_LT(turns, 2000) << "the worker never got there";
    engine_.on_turn = nullptr;
    return status;
  }
  // Begins evaluation "e" of prompts {2, i} in the store and has the worker answer it at version 3.
  EvaluationRun MakeEvaluation(int32_t n) {
    EXPECT_EQ(store_->evaluations().Begin("e", n), absl::OkStatus());
    const VersionForTest made = MakeVersion({0, 3}, 1, 100, 64);
    EvaluationRun run;
    run.id = "e";
    run.weights = {made.manifest, made.bytes};
    for (int32_t i = 0; i < n; ++i) {
      Prompt prompt;
      prompt.ordinal = i;
      prompt.prompt_ids = {2, i};
      prompt.attributes["answer"] = StrCat(i);
      run.prompts.push_back(std::make_shared<const Prompt>(std::move(prompt)));
    }
    run.sampling.max_new_tokens = 9;
    run.seed = 5;
    evaluated_rows_ = n;
    return run;
  }
  // Whether all rows of evaluation "e" have an answer or a failure, or it was abandoned. Stores
  // them in answers_, or the reason in abandoned_.
  bool Evaluated() {
    if (!abandoned_.empty() || !answers_.empty()) return true;
    const auto state = store_->evaluations().Read("e");
    if (!state.ok()) return false;
    abandoned_ = state->abandoned;
    if (!abandoned_.empty()) return true;
    if (state->answered < evaluated_rows_ || worker().EvaluationBusy()) return false;
    std::map<int64_t, std::shared_ptr<const Response>> responses;
    const auto leased = store_->evaluations().LeaseRows(Task::kScore, "r", 1000);
    for (const RowLease& row : *leased) {
      responses[row.sample.key.ordinal] = row.sample.response;
      const FieldValues score{std::make_shared<const Score>()};
      EXPECT_EQ(store_->evaluations().PutFields(Task::kScore, row.token, score), absl::OkStatus());
    }
    const std::vector<EvaluationRow> rows = store_->evaluations().Read("e")->rows;
    for (int64_t i = 0; i < std::ssize(rows); ++i) {
      answers_.push_back({i, nullptr, responses[i], rows[static_cast<size_t>(i)].error});
    }
    return !answers_.empty();
  }
  StoreStats Stats() { return *store_->Stats(); }
  int64_t Now(GroupState state) { return Stats().groups[static_cast<int>(state)]; }
  bool AllPut(int64_t samples) { return Stats().samples_put == samples; }
  std::vector<GroupLease> LeaseAsAnother(int64_t n) {
    const auto reply = store_->LeasePrompts({"another", "", {0, 5}, n});
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply->leases;
  }

  static constexpr absl::Duration kTtl = absl::Seconds(30);
  FakeClock clock_;
  std::unique_ptr<InMemoryTrajectoryStore> memory_;
  std::unique_ptr<WatchedStore> store_;
  FakeInferenceEngine engine_;
  int64_t evaluated_rows_ = 0;
  std::vector<EvaluationAnswer> answers_;
  std::string abandoned_;
  std::shared_ptr<WeightSubscriber> subscriber_ = std::make_shared<WeightSubscriber>();
  RolloutOptions worker_options_;
  std::unique_ptr<EpisodeRunner> episodes_;  // null: no environment
  int64_t next_ordinal_ = 0;

 private:
  std::unique_ptr<RolloutWorker> worker_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_WORKER_ROLLOUT_WORKER_FIXTURE_H_
