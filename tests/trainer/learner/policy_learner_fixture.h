#ifndef FRESHET_TESTS_TRAINER_LEARNER_POLICY_LEARNER_FIXTURE_H_
#define FRESHET_TESTS_TRAINER_LEARNER_POLICY_LEARNER_FIXTURE_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/fault_point.h"
#include "base/random.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/torch_threads.h"
#include "tests/model/test_directory.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tiny_model.h"
#include "tests/trainer/learner/train_groups.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// A learner of TinyModel, and batches of random tokens with the learner's own log-probs.
class PolicyLearnerFixture : public testing::Test {
 protected:
  PolicyLearnerFixture() {
    UseOneTorchThread();
    options_.model = TinyModel();
    options_.model.initializer_range = 0.15;
    options_.device = TestDeviceName();
    options_.deterministic = true;
    options_.max_new_tokens = 8;
    options_.schedule.peak = 0.01;
    options_.schedule.total_steps = 100;
  }

  std::unique_ptr<PolicyLearner> MakeLearner(const PolicyLearnerOptions& options) const {
    auto learner = PolicyLearner::Create(options, clock_);
    EXPECT_TRUE(learner.ok()) << learner.status();
    (*learner)->InitializeRandom(5);
    return *std::move(learner);
  }
  std::unique_ptr<PolicyLearner> MakeLearner() const { return MakeLearner(options_); }
  // Writes the learner's checkpoint of step `step`; returns its directory.
  std::string Save(const Learner& learner, int64_t step, Dtype dtype = Dtype::kF32) {
    CheckpointContents contents;
    contents.weights_dtype = dtype;
    contents.state.job = "job";
    contents.state.policy = {0, step};
    contents.learner = *learner.Snapshot();
    contents.files = {{"config.json", options_.model.ToJson()}};
    FaultPoints faults;
    const auto written = WriteCheckpoint(
        dir_.path(), contents, [] { return absl::OkStatus(); }, faults);
    EXPECT_TRUE(written.ok()) << written.status();
    return dir_.File(StrCat("step-", step));
  }

  static std::vector<int32_t> Tokens(int64_t count, uint64_t seed) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<int32_t>(RandomBits(seed, static_cast<uint64_t>(i)) % 32));
    }
    return tokens;
  }
  static std::vector<int32_t> Joined(const TrainSample& sample) {
    std::vector<int32_t> ids = sample.sample.prompt->prompt_ids;
    const std::vector<int32_t>& response = sample.sample.response->response_ids;
    ids.insert(ids.end(), response.begin(), response.end());
    return ids;
  }
  static std::vector<float> Logprobs(PolicyLearner& learner, const TrainSample& sample) {
    const auto scores = learner.Score({Joined(sample)});
    EXPECT_TRUE(scores.ok()) << scores.status();
    const size_t skip = sample.sample.prompt->prompt_ids.size() - 1;
    return {(*scores)[0].begin() + static_cast<ptrdiff_t>(skip), (*scores)[0].end()};
  }
  static double SumLogprob(PolicyLearner& learner, const TrainSample& sample) {
    const std::vector<float> logprobs = Logprobs(learner, sample);
    return std::accumulate(logprobs.begin(), logprobs.end(), 0.0);
  }
  // `num_groups` groups of 4 samples of different lengths. Sample 0 of each group gets reward 1,
  // the others 0. Behaviour log-probs are the learner's own.
  static std::vector<TrainGroup> OnPolicyGroups(PolicyLearner& learner, int64_t num_groups,
                                                uint64_t seed = 1) {
    std::vector<TrainGroup> groups;
    for (int64_t g = 0; g < num_groups; ++g) {
      const uint64_t base = seed * 1000 + static_cast<uint64_t>(g) * 10;
      const auto prompt = MakePrompt(g, Tokens(3 + g, base));
      TrainGroup& group = groups.emplace_back();
      group.ordinal = g;
      for (int32_t i = 0; i < 4; ++i) {
        const int64_t length = 2 + (g + i) % 5;
        TrainSample sample = MakeTrainSample(
            prompt, i, Tokens(length, base + 1 + static_cast<uint64_t>(i)),
            std::vector<float>(static_cast<size_t>(length), 0.0F), i == 0 ? 1.0 : 0.0);
        Response response = *sample.sample.response;
        response.behavior_logprobs = Logprobs(learner, sample);
        ReplaceResponse(sample, std::move(response));
        group.samples.push_back(std::move(sample));
      }
    }
    return groups;
  }
  static TrainStepResult Train(PolicyLearner& learner, int64_t step,
                               const std::vector<TrainGroup>& groups) {
    const auto result = learner.TrainStep(step, groups);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : TrainStepResult{};
  }
  // The masters.
  static std::vector<float> Weights(const PolicyLearner& learner) {
    return NumbersOf((*learner.Snapshot())->model);
  }
  static std::vector<float> NumbersOf(const std::vector<StateTensor>& tensors) {
    std::vector<float> numbers;
    for (const StateTensor& tensor : tensors) {
      const auto bytes = tensor.Read();
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      if (!bytes.ok()) return {};
      const size_t begin = numbers.size();
      numbers.resize(begin + bytes->size() / sizeof(float));
      std::memcpy(numbers.data() + begin, bytes->data(), bytes->size());
    }
    return numbers;
  }
  static double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    }
    return largest;
  }

  FakeClock clock_;
  PolicyLearnerOptions options_;
  TestDirectory dir_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_LEARNER_POLICY_LEARNER_FIXTURE_H_
