#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "base/mutex.h"
#include "model/model_files.h"
#include "model/safetensors.h"
#include "model/tensor_convert.h"
#include "tests/trainer/learner/policy_learner_fixture.h"

namespace freshet {
namespace {

// Saving a learner's state and loading it into another one.
class PolicyLearnerStateTest : public PolicyLearnerFixture {
 protected:
  // A learner with a checkpoint's weights and optimizer state.
  std::unique_ptr<PolicyLearner> Load(const std::string& path) {
    auto learner = MakeLearner();
    learner->InitializeRandom(999);
    const auto files = ModelFiles::Open(path);
    EXPECT_TRUE(files.ok()) << files.status();
    EXPECT_TRUE((*files)->CheckTensors().empty());
    const auto found = OpenCheckpoint(path);
    EXPECT_TRUE(found.ok()) << found.status();
    const absl::Status loaded = learner->LoadCheckpoint(path, found->optimizer_steps);
    EXPECT_TRUE(loaded.ok()) << loaded;
    return learner;
  }
  // Expects that the next update waits for `end_loan`, and that the snapshot, while it exists, has
  // the state that it was made of.
  void ExpectLent(const std::function<void(std::shared_ptr<const LearnerState>&)>& end_loan);
};

TEST_F(PolicyLearnerStateTest, ContinuesFromACheckpointBitForBit) {
  const struct {
    Dtype dtype;
    bool tied;
    bool bf16;
  } cases[] = {{Dtype::kF32, false, false},  {Dtype::kF32, true, false},
               {Dtype::kBf16, false, false}, {Dtype::kBf16, true, false},
               {Dtype::kF32, true, true},    {Dtype::kBf16, false, true}};
  int64_t saved = 0;
  for (const auto& [dtype, tied, bf16] : cases) {
    SCOPED_TRACE(testing::Message() << DtypeName(dtype) << (tied ? ", tied" : "")
                                    << (bf16 ? ", computes in bf16" : ""));
    options_.model.tie_word_embeddings = tied;
    options_.bf16 = bf16;
    options_.weight_decay = 0.1;
    options_.minibatches_per_step = 2;
    const auto learner = MakeLearner();
    const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 4);
    Train(*learner, 1, groups);
    Train(*learner, 2, groups);
    const auto resumed = Load(Save(*learner, ++saved, dtype));
    EXPECT_EQ(Weights(*resumed), Weights(*learner));
    for (int64_t step = 3; step <= 5; ++step) {
      const TrainStepResult expected = Train(*learner, step, groups);
      const TrainStepResult result = Train(*resumed, step, groups);
      EXPECT_EQ(result.loss, expected.loss);
      EXPECT_EQ(result.grad_norm, expected.grad_norm);
      EXPECT_EQ(*resumed->Arena(), *learner->Arena()) << "a redo publishes the committed bytes";
    }
    EXPECT_EQ(Weights(*resumed), Weights(*learner));
  }
}

TEST_F(PolicyLearnerStateTest, ABf16CheckpointIsTheModelRoundedToNearest) {
  const auto learner = MakeLearner();
  const std::string path = Save(*learner, 1, Dtype::kBf16);
  const auto rounded = MakeLearner();
  const std::shared_ptr<const ModelFiles> files = *ModelFiles::Open(path);
  ASSERT_TRUE(rounded->LoadModel(files).ok());
  const std::vector<float> masters = Weights(*learner);
  const std::vector<float> weights = Weights(*rounded);
  EXPECT_NE(weights, masters);
  const at::Tensor expected = ToTensor(masters).to(at::kBFloat16).to(at::kFloat);
  EXPECT_EQ(weights, ToFloats(expected));
  const auto snapshot = *learner->Snapshot();
  for (const StateTensor& tensor : snapshot->model) {
    EXPECT_EQ(files->Find(tensor.name)->dtype, Dtype::kBf16) << tensor.name;
  }
}

TEST_F(PolicyLearnerStateTest, Bf16WeightsWithoutMastersAreDataLoss) {
  const auto learner = MakeLearner();
  const std::string path = Save(*learner, 1, Dtype::kBf16);
  std::filesystem::copy_file(Save(*learner, 2) + "/optimizer.safetensors",
                             path + "/optimizer.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(learner->LoadCheckpoint(path, 0).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(learner->LoadReference(path).code(), absl::StatusCode::kDataLoss);
}

TEST_F(PolicyLearnerStateTest, WithoutItsOptimizerItWouldNot) {
  const auto learner = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 4);
  Train(*learner, 1, groups);
  const auto resumed = Load(Save(*learner, 1));
  resumed->BeginPolicyTraining();
  Train(*learner, 2, groups);
  Train(*resumed, 2, groups);
  EXPECT_NE(Weights(*resumed), Weights(*learner));
}

void PolicyLearnerStateTest::ExpectLent(
    const std::function<void(std::shared_ptr<const LearnerState>&)>& end_loan) {
  const auto learner = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 2);
  Train(*learner, 1, groups);
  const std::vector<float> before = Weights(*learner);
  const std::vector<float> moments = NumbersOf((*learner->Snapshot())->optimizer);
  auto snapshot = *learner->Snapshot();
  Notification trained;
  std::jthread trainer([&] {
    Train(*learner, 2, groups);
    trained.Notify();
  });
  EXPECT_FALSE(trained.WaitFor(absl::Milliseconds(50)));
  EXPECT_EQ(NumbersOf(snapshot->model), before);
  end_loan(snapshot);
  trainer.join();
  EXPECT_NE(Weights(*learner), before);
  if (snapshot == nullptr) return;
  EXPECT_EQ(snapshot->optimizer_steps, 1);
  EXPECT_EQ(NumbersOf(snapshot->model), before);
  EXPECT_EQ(NumbersOf(snapshot->optimizer), moments);
}

TEST_F(PolicyLearnerStateTest, TheNextUpdateWaitsUntilASnapshotIsCopied) {
  ExpectLent([](std::shared_ptr<const LearnerState>& snapshot) { snapshot->copy(); });
}

TEST_F(PolicyLearnerStateTest, WhereMemoryIsShortTheNextUpdateWaitsUntilASnapshotIsDropped) {
  options_.available_memory = [] { return 0; };
  ExpectLent([](std::shared_ptr<const LearnerState>& snapshot) {
    snapshot->copy();
    snapshot = nullptr;
  });
}

TEST_F(PolicyLearnerStateTest, WeightEntriesDescribeTheArena) {
  const auto learner = MakeLearner();
  const auto snapshot = *learner->Snapshot();
  const std::string_view arena = *learner->Arena();
  const std::vector<WeightEntry> entries = learner->WeightEntries();
  ASSERT_EQ(entries.size(), snapshot->model.size());
  int64_t parameters = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const StateTensor& tensor = snapshot->model[i];
    EXPECT_EQ(entries[i].name, tensor.name);
    EXPECT_EQ(entries[i].shape, tensor.shape);
    EXPECT_EQ(entries[i].dtype, "F32");
    const auto offset = static_cast<size_t>(entries[i].offset_bytes);
    ASSERT_LE(offset + tensor.Read()->size(), arena.size());
    EXPECT_EQ(std::memcmp(arena.data() + offset, tensor.Read()->data(), tensor.Read()->size()), 0);
    parameters += static_cast<int64_t>(tensor.Read()->size() / sizeof(float));
  }
  EXPECT_EQ(learner->num_parameters(), parameters);
}

TEST_F(PolicyLearnerStateTest, ABf16LearnerPublishesItsMastersRoundedToNearestEven) {
  options_.model = TinyMixedModel();
  options_.bf16 = true;
  const auto learner = MakeLearner();
  const std::string initial(*learner->Arena());
  Train(*learner, 1, OnPolicyGroups(*learner, 2));
  const std::string_view arena = *learner->Arena();
  EXPECT_NE(arena, initial);
  const auto snapshot = *learner->Snapshot();
  const std::vector<WeightEntry> entries = learner->WeightEntries();
  ASSERT_EQ(entries.size(), snapshot->model.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::span<const std::byte> master = *snapshot->model[i].Read();
    EXPECT_EQ(entries[i].name, snapshot->model[i].name);
    EXPECT_EQ(entries[i].shape, snapshot->model[i].shape);
    EXPECT_EQ(entries[i].dtype, "BF16");
    std::vector<uint16_t> expected;
    for (size_t byte = 0; byte < master.size(); byte += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, master.data() + byte, sizeof(value));
      expected.push_back(RoundToBf16(value));
    }
    const auto offset = static_cast<size_t>(entries[i].offset_bytes);
    ASSERT_LE(offset + master.size() / 2, arena.size());
    EXPECT_EQ(std::memcmp(arena.data() + offset, expected.data(), master.size() / 2), 0)
        << entries[i].name;
  }
  options_.bf16 = false;
  EXPECT_EQ(2 * arena.size(), MakeLearner()->Arena()->size());
}

TEST_F(PolicyLearnerStateTest, AnOptimizerOfAnotherModelIsDataLoss) {
  const auto learner = MakeLearner();
  const std::vector<float> before = Weights(*learner);
  const std::string path = Save(*learner, 1);
  int64_t saved = 1;
  for (const bool wider : {false, true}) {
    PolicyLearnerOptions other = options_;
    (wider ? other.model.intermediate_size : other.model.num_hidden_layers) = wider ? 64 : 1;
    std::filesystem::copy_file(Save(*MakeLearner(other), ++saved) + "/optimizer.safetensors",
                               path + "/optimizer.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(learner->LoadCheckpoint(path, 0).code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(learner->LoadCheckpoint(dir_.File("missing"), 0).ok());
  EXPECT_EQ(Weights(*learner), before);
  EXPECT_FALSE(learner->LoadCheckpoint(Save(*learner, ++saved), -1).ok());
}

TEST_F(PolicyLearnerStateTest, AModelOfAnotherShapeIsRefused) {
  const std::string path = Save(*MakeLearner(), 1);
  PolicyLearnerOptions other = options_;
  other.model.intermediate_size = 64;
  const auto misfit = MakeLearner(other);
  EXPECT_EQ(misfit->LoadModel(*ModelFiles::Open(path)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(misfit->LoadCheckpoint(path, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(misfit->LoadReference(path).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PolicyLearnerStateTest, AReferenceFromACheckpointIsAFrozenOne) {
  options_.loss.kl = {KlKind::kK3, 0.1};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    SCOPED_TRACE(DtypeName(dtype));
    const auto frozen = MakeLearner();
    const std::vector<TrainGroup> groups = OnPolicyGroups(*frozen, 2);
    const std::string path = Save(*frozen, dtype == Dtype::kF32 ? 1 : 2, dtype);
    const auto loaded = MakeLearner();
    frozen->FreezeReference();
    ASSERT_TRUE(loaded->LoadReference(path).ok());
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_EQ(Train(*frozen, step, groups).kl_ref, Train(*loaded, step, groups).kl_ref);
    }
    EXPECT_EQ(Weights(*frozen), Weights(*loaded));
  }
}

TEST_F(PolicyLearnerStateTest, SupervisedStepsLearnTheAnswerAndLeaveNoOptimizerState) {
  const auto learner = MakeLearner();
  const std::vector<SftExample> examples = {{{1, 2, 3}, {4, 5}}, {{6}, {7, 8, 9}}};
  const double first = *learner->SftStep(examples, 0.01);
  double last = first;
  for (int i = 0; i < 40; ++i) last = *learner->SftStep(examples, 0.01);
  EXPECT_GT(first, 2.0);
  EXPECT_LT(last, 0.1);
  // The loss is the mean over the answer tokens only.
  const auto scores = *learner->Score({{1, 2, 3, 4, 5}, {6, 7, 8, 9}});
  const double nll =
      -(scores[0][2] + scores[0][3] + scores[1][0] + scores[1][1] + scores[1][2]) / 5;
  EXPECT_NEAR(*learner->SftStep(examples, 0.0), nll, 1e-5);
  EXPECT_GT((*learner->Snapshot())->optimizer_steps, 0);
  learner->BeginPolicyTraining();
  EXPECT_EQ((*learner->Snapshot())->optimizer_steps, 0);
}

TEST_F(PolicyLearnerStateTest, MicrobatchesOfSupervisedStepsAddUp) {
  options_.epsilon = 1e-3;
  const std::vector<SftExample> examples = {{{1, 2, 3}, {4, 5}}, {{6}, {7, 8, 9}}, {{1}, {2}}};
  const auto whole = MakeLearner();
  options_.max_tokens_per_microbatch = 1;
  const auto split = MakeLearner();
  EXPECT_NEAR(*whole->SftStep(examples, 0.01), *split->SftStep(examples, 0.01), 1e-6);
  EXPECT_LT(MaxDifference(Weights(*whole), Weights(*split)), 1e-6);
}

TEST_F(PolicyLearnerStateTest, ScoreOfASingleTokenIsEmpty) {
  const auto scores = MakeLearner()->Score({{5}, {1, 2}, {}});
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_TRUE((*scores)[0].empty());
  EXPECT_EQ((*scores)[1].size(), 1U);
  EXPECT_TRUE((*scores)[2].empty());
}

}  // namespace
}  // namespace freshet
