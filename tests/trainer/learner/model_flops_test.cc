#include "trainer/learner/model_flops.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

ModelConfig Model() {
  ModelConfig model;
  model.vocab_size = 11;
  model.hidden_size = 8;
  model.num_hidden_layers = 3;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.head_dim = 5;
  model.intermediate_size = 7;
  return model;
}

PackTree Tree(size_t prefix, const std::vector<size_t>& suffixes) {
  PackTree tree;
  tree.prefix.resize(prefix);
  for (const size_t size : suffixes) tree.suffixes.emplace_back(size);
  return tree;
}

TEST(ModelFlops, CountsAnOrdinarySequenceByHand) {
  // Per token: q 8 x 10, k and v 8 x 5 each, o 10 x 8, and three MLP products of 8 x 7.
  const double layer = 80 + 2 * 40 + 80 + 3 * 56;
  // 4 tokens attend to 1 + 2 + 3 + 4 keys; a pair costs a dot product and a sum, 2 heads of 5.
  const double attention = 4 * 10 * (1 + 2 + 3 + 4);
  const double head = 2 * 8 * 11 * 3;  // 3 tokens predict
  EXPECT_DOUBLE_EQ(TrainingFlops(Model(), {Tree(4, {})}),
                   3 * (3 * (2 * layer * 4 + attention) + head));
}

TEST(ModelFlops, ASharedPrefixCountsOnce) {
  const ModelConfig model = Model();
  const double shared = TrainingFlops(model, {Tree(10, {3, 5})});
  const double apart = TrainingFlops(model, {Tree(10, {3}), Tree(10, {5})});
  const double layer = 80 + 2 * 40 + 80 + 3 * 56;
  const double prefix = 3 * (3 * (2 * layer * 10 + 4 * 10 * 55) + 2 * 8 * 11);
  EXPECT_DOUBLE_EQ(apart - shared, prefix);
}

TEST(ModelFlops, AWindowBoundsTheKeys) {
  ModelConfig model = Model();
  const std::vector<PackTree> trees = {Tree(4, {3}), Tree(1, {6})};
  const double full = TrainingFlops(model, trees);
  model.sliding_window = 3;
  model.sliding_layers = {true, false, false};
  // Tokens 4 to 6 of the first tree see 3 keys instead of 4, 5 and 6; so do those of the second.
  EXPECT_DOUBLE_EQ(full - TrainingFlops(model, trees), 3 * 4 * 10 * 2 * (1 + 2 + 3));
}

TEST(ModelFlops, ATokenCostsItsExpertsAndTheRouter) {
  ModelConfig model = Model();
  const double dense = TrainingFlops(model, {Tree(4, {})});
  model.num_experts = 6;
  model.num_experts_per_tok = 2;
  model.moe_intermediate_size = 5;
  model.moe_layers = {false, true, false};
  EXPECT_DOUBLE_EQ(TrainingFlops(model, {Tree(4, {})}) - dense,
                   3 * 2 * 4 * (8 * 6 + 3 * 8 * (2 * 5 - 7)));
}

TEST(ModelFlops, NothingCostsNothing) { EXPECT_EQ(TrainingFlops(Model(), {}), 0); }

}  // namespace
}  // namespace freshet
