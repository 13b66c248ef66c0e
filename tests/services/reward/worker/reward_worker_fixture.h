#ifndef FRESHET_TESTS_SERVICES_REWARD_WORKER_REWARD_WORKER_FIXTURE_H_
#define FRESHET_TESTS_SERVICES_REWARD_WORKER_REWARD_WORKER_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "gtest/gtest.h"
#include "services/reward/worker/reward_worker.h"
#include "tests/services/reward/scorers/callback_scorer.h"
#include "tests/testing/fake_trajectory_store.h"

namespace freshet {

// A store to which tests add rows, and scorers of the tests.
class RewardWorkerTest : public testing::Test {
 protected:
  static constexpr absl::Duration kGuard = absl::Seconds(10);
  // Token ids are bytes.
  static std::string Decode(const std::vector<int32_t>& ids) {
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    return text;
  }
  static Response ResponseOf(const std::string& text, FinishReason finish = FinishReason::kStop) {
    Response response;
    response.response_ids.assign(text.begin(), text.end());
    response.finish = finish;
    return response;
  }
  static StoreOptions StoreOptionsOf() {
    StoreOptions options;
    options.job = "j";
    options.max_row_failures = 3;
    return options;
  }
  void Use(CallbackScorer::Function function) {
    scorer_.Add("c", 1.0, std::make_unique<CallbackScorer>(std::move(function)));
  }
  RewardWorker MakeWorker(int64_t batch_rows = 64) {
    RewardWorkerOptions options;
    options.batch_rows = batch_rows;
    options.max_wait = absl::Milliseconds(20);
    return RewardWorker(store_, scorer_, Decode, options);
  }
  void AddRows(int count) {
    for (int i = 0; i < count; ++i) {
      store_.AddRow({i, 0, 0}, {{"answer", "a"}}, ResponseOf(i % 2 == 0 ? "a" : "b"));
    }
  }
  bool AwaitScored(size_t rows) {
    const absl::Time deadline = absl::Now() + kGuard;
    while (absl::Now() < deadline) {
      const uint64_t seen = store_.ChangeCount(Topic::kBatch);
      if (store_.scored_rows() >= rows) return true;
      store_.AwaitChange(Topic::kBatch, seen, kGuard);
    }
    return false;
  }

  FakeTrajectoryStore store_{StoreOptionsOf()};
  CompositeScorer scorer_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_REWARD_WORKER_REWARD_WORKER_FIXTURE_H_
