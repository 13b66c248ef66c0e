#include "trainer/learner/model_flops.h"

#include <cstdint>

namespace freshet {
namespace {

// Number of keys attended to by `count` causal queries that follow `before` other tokens.
double Pairs(double before, double count) { return count * before + count * (count + 1) / 2; }

}  // namespace

double TrainingFlops(const ModelConfig& model, const std::vector<PackTree>& trees) {
  double tokens = 0, predicting = 0, pairs = 0;
  for (const PackTree& tree : trees) {
    const auto prefix = static_cast<double>(tree.prefix.size());
    tokens += static_cast<double>(PackedTokens(tree));
    pairs += Pairs(0, prefix);
    predicting += tree.suffixes.empty() ? prefix - 1 : 1;
    for (const std::vector<int32_t>& suffix : tree.suffixes) {
      const double queries = static_cast<double>(suffix.size()) - 1;
      pairs += Pairs(prefix, queries);
      predicting += queries;
    }
  }
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto queries = static_cast<double>(model.num_attention_heads * model.head_dim);
  const auto keys = static_cast<double>(model.num_key_value_heads * model.head_dim);
  const auto layers = static_cast<double>(model.num_hidden_layers);
  double weights = 0;  // that a token is multiplied with
  for (int64_t i = 0; i < model.num_hidden_layers; ++i) {
    const int64_t inner = model.IsMoe(i) ? model.num_experts_per_tok * model.moe_intermediate_size
                                         : model.intermediate_size;
    weights += hidden * (2 * queries + 2 * keys) + 3 * hidden * static_cast<double>(inner);
    if (model.IsMoe(i)) weights += hidden * static_cast<double>(model.num_experts);
  }
  const double forward = 2 * weights * tokens + 4 * layers * queries * pairs +
                         2 * hidden * static_cast<double>(model.vocab_size) * predicting;
  return 3 * forward;
}

}  // namespace freshet
