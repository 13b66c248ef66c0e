#include "trainer/ranks/rank_work.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"
#include "tests/trainer/learner/train_groups.h"
#include "tests/trainer/ranks/batch_store.h"

namespace freshet {
namespace {

using trainer::v1::RankWork;

std::vector<TrainGroup> Groups() {
  std::vector<TrainGroup> groups;
  for (int32_t g = 0; g < 3; ++g) {
    const auto prompt = MakePrompt(g, {1, 2, 3 + g});
    TrainGroup& group = groups.emplace_back();
    for (int32_t i = 0; i < 2; ++i) {
      group.samples.push_back(MakeTrainSample(prompt, i, {4, 5 + i, 6}, {-0.5F, -1.0F, -0.25F}, i));
    }
  }
  return groups;
}

Minibatch Batch(const std::vector<TrainGroup>& groups = Groups(), bool whole_responses = false) {
  PolicyLearnerOptions options;
  options.whole_responses = whole_responses;
  options.model = TinyModel();
  options.max_new_tokens = 3;
  Minibatch batch = (*PlanStep(options, 7, groups)).minibatches[0];
  TrainingRows::Columns& columns = batch.rows.columns[1];
  columns.proximal_logprobs.assign(columns.loss_mask.size(), -0.75F);
  return batch;
}

absl::StatusOr<std::vector<SampleView>> ReadsNothing(const std::vector<SampleKey>&) {
  return absl::InternalError("the work holds its tokens");
}

RankWork WithTokens(const Minibatch& batch) {
  return ToProto(RankWork::KIND_UPDATE, 7, batch, /*by_key=*/false);
}
RankWork ByKey(const Minibatch& batch) {
  return ToProto(RankWork::KIND_UPDATE, 7, batch, /*by_key=*/true);
}

TEST(RankWork, CarriesAShare) {
  const Minibatch batch = Batch();
  const RankWork work = WithTokens(batch);
  const absl::StatusOr<Minibatch> read = ShareOf(work, ReadsNothing);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WithTokens(*read).SerializeAsString(), work.SerializeAsString());
  EXPECT_EQ(read->normalizer.total_tokens, batch.normalizer.total_tokens);
  EXPECT_EQ(read->normalizer.total_sequences, batch.normalizer.total_sequences);
  EXPECT_EQ(read->normalizer.max_tokens, 3);
  EXPECT_EQ(read->rows.num_sequences, batch.rows.num_sequences);
  EXPECT_EQ(read->rows.loss_tokens, batch.rows.loss_tokens);
  EXPECT_EQ(SuffixTokens(*read), 18);
  for (size_t t = 0; t < batch.rows.trees.size(); ++t) {
    EXPECT_EQ(read->rows.trees[t].suffixes, batch.rows.trees[t].suffixes);
    EXPECT_EQ(read->rows.columns[t].sequence_index, batch.rows.columns[t].sequence_index);
  }
}

TEST(RankWork, RefusesColumnsThatDoNotFit) {
  const RankWork good = WithTokens(Batch());
  const auto refused = [&](auto change) {
    RankWork bad = good;
    change(*bad.mutable_trees(1));
    return absl::IsDataLoss(ShareOf(bad, ReadsNothing).status());
  };
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.add_suffix_lengths(1); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.set_suffix_lengths(0, -1); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.set_suffix_lengths(0, 1 << 30); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.add_suffix_tokens(1); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.clear_suffix_lengths(); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.clear_prefix(); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.add_behavior_logprobs(0); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.add_run_loss_masks(0); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.add_run_advantages(0); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.add_run_lengths(1); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.set_run_lengths(0, -1); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.set_run_lengths(0, 1 << 30); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.set_run_lengths(0, 1); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.add_proximal_logprobs(0); }));
  EXPECT_TRUE(refused([](RankWork::Tree& tree) { tree.Clear(); }));
}

TEST(RankWork, NamesSamplesOfTheStoreInsteadOfTheirTokens) {
  std::vector<TrainGroup> groups = Groups();
  groups[0].samples[0].loss_mask[1] = 0;  // by the disposition
  const Minibatch batch = Batch(groups);
  StoredBatch store(groups);
  const RankWork work = ByKey(batch);
  EXPECT_EQ(work.trees(0).suffix_tokens_size(), 0);
  const auto read = ShareOf(work, [&](const auto& keys) { return store.Read(keys); });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WithTokens(*read).SerializeAsString(), WithTokens(batch).SerializeAsString());
  EXPECT_EQ(read->rows.columns[0].sequence_index, batch.rows.columns[0].sequence_index);
  EXPECT_EQ(store.read().size(), 6U);
}

TEST(RankWork, NamesSegmentsWhoseTreesShareASample) {
  const auto prompt = MakePrompt(0, {9});
  TrainGroup group;
  for (int32_t i = 0; i < 2; ++i) {
    group.samples.push_back(
        MakeTrainSample(prompt, i, {1, 2, 5, 6 + i, 1, 3, 7}, std::vector<float>(7, -0.5F), i));
    Response response = *group.samples.back().sample.response;
    response.segments = {0, 4};
    response.loss_mask = group.samples.back().loss_mask = {0, 0, 1, 1, 0, 0, 1};
    ReplaceResponse(group.samples.back(), response);
  }
  const Minibatch batch = Batch({group}, /*whole_responses=*/true);
  ASSERT_EQ(batch.rows.trees.size(), 2U);
  StoredBatch store({group});
  const auto read = ShareOf(ByKey(batch), [&](const auto& keys) { return store.Read(keys); });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WithTokens(*read).SerializeAsString(), WithTokens(batch).SerializeAsString());
  EXPECT_EQ(store.read().size(), 2U) << "each sample once";
}

TEST(RankWork, RefusesSequencesThatTheirSamplesDoNotHave) {
  StoredBatch store(Groups());
  const RankWork good = ByKey(Batch());
  const auto status = [&](auto change) {
    RankWork bad = good;
    change(*bad.mutable_trees(1));
    return ShareOf(bad, [&](const auto& keys) { return store.Read(keys); }).status();
  };
  using Tree = RankWork::Tree;
  EXPECT_TRUE(status([](Tree&) {}).ok());
  EXPECT_TRUE(absl::IsDataLoss(status([](Tree& tree) { tree.mutable_sequences(0)->set_end(4); })));
  EXPECT_TRUE(absl::IsDataLoss(status([](Tree& tree) { tree.mutable_sequences(0)->set_end(0); })));
  EXPECT_TRUE(
      absl::IsDataLoss(status([](Tree& tree) { tree.mutable_sequences(1)->set_begin(-1); })));
  EXPECT_TRUE(absl::IsDataLoss(status([](Tree& tree) { tree.set_shared(3); })));
  EXPECT_TRUE(absl::IsDataLoss(status([](Tree& tree) { tree.set_shared(-1); })));
  EXPECT_TRUE(absl::IsDataLoss(status([](Tree& tree) { tree.mutable_sequences()->RemoveLast(); })));
  EXPECT_TRUE(
      absl::IsNotFound(status([](Tree& tree) { tree.mutable_sequences(0)->set_index(2); })));
  std::vector<TrainGroup> damaged = Groups();
  Response response = *damaged[0].samples[0].sample.response;
  response.behavior_logprobs.pop_back();
  ReplaceResponse(damaged[0].samples[0], response);
  store.Set(damaged);
  EXPECT_TRUE(absl::IsDataLoss(status([](Tree&) {})));
  EXPECT_TRUE(absl::IsDataLoss(
      ShareOf(good, [](const auto&) { return std::vector<SampleView>(); }).status()));
}

trainer::v1::RankReport Report(int rank, trainer::v1::RankReport::State state, int64_t step,
                               const std::string& phase) {
  trainer::v1::RankReport report;
  report.set_rank(rank);
  report.set_state(state);
  report.set_step(step);
  report.set_phase(phase);
  return report;
}

TEST(LateRanks, NamesThoseThatACollectiveOperationWaitsFor) {
  using trainer::v1::RankReport;
  const std::vector<RankReport> others = {
      Report(1, RankReport::STATE_TRAINING, 5, PhaseText(RankPhase::kComputing)),
      Report(2, RankReport::STATE_TRAINING, 5, PhaseText(RankPhase::kSumming)),
      Report(3, RankReport::STATE_IDLE, 4, ""), Report(4, RankReport::STATE_JOINING, 0, "")};
  EXPECT_EQ(LateRanks(RankPhase::kSumming, 5, others),
            "step 5: rank 1 (computes), rank 3 (waits for work), rank 4 (joins)");
  EXPECT_EQ(LateRanks(RankPhase::kSumming, 5, {others[1]}), "");
  EXPECT_EQ(LateRanks(RankPhase::kComputing, 5, others), "") << "it does not wait itself";
}

TEST(ToRankState, SaysWhatTheRankDoesAndItsLastCollective) {
  trainer::v1::RankReport report =
      Report(2, trainer::v1::RankReport::STATE_TRAINING, 5, PhaseText(RankPhase::kUpdating));
  report.set_last_collective(CollectiveText(RankPhase::kSumming));
  const RankState rank = ToRankState(report);
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.state, "updates weights");
  EXPECT_EQ(rank.step, 5);
  EXPECT_EQ(rank.last_collective, "all-reduce of gradients");
}

}  // namespace
}  // namespace freshet
