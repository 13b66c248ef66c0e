#include "trainer/learner/model_flops.h"

#include <algorithm>
#include <cstdint>

namespace freshet {
namespace {

// Number of keys attended to by `count` causal queries that follow `before` other tokens, each
// seeing at most `window` keys (0: all).
double Pairs(double before, double count, double window) {
  if (window <= 0 || before + count <= window) return count * before + count * (count + 1) / 2;
  const double growing = std::max(0.0, window - before);  // queries that see all earlier tokens
  return Pairs(before, growing, 0) + (count - growing) * window;
}

// Keys attended to by all tokens of a layer.
double LayerPairs(const std::vector<PackTree>& trees, int64_t window) {
  double pairs = 0;
  for (const PackTree& tree : trees) {
    const auto prefix = static_cast<double>(tree.prefix.size());
    pairs += Pairs(0, prefix, static_cast<double>(window));
    for (const std::vector<int32_t>& suffix : tree.suffixes) {
      pairs += Pairs(prefix, static_cast<double>(suffix.size()) - 1, static_cast<double>(window));
    }
  }
  return pairs;
}

}  // namespace

double TrainingFlops(const ModelConfig& model, const std::vector<PackTree>& trees) {
  double tokens = 0, predicting = 0;
  for (const PackTree& tree : trees) {
    const auto prefix = static_cast<double>(tree.prefix.size());
    tokens += static_cast<double>(PackedTokens(tree));
    predicting += tree.suffixes.empty() ? prefix - 1 : 1;
    for (const std::vector<int32_t>& suffix : tree.suffixes) {
      predicting += static_cast<double>(suffix.size()) - 1;
    }
  }
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto queries = static_cast<double>(model.num_attention_heads * model.head_dim);
  const auto keys = static_cast<double>(model.num_key_value_heads * model.head_dim);
  const double full_pairs = LayerPairs(trees, 0);
  double pairs = 0;    // of all layers
  double weights = 0;  // that a token is multiplied with
  for (int64_t i = 0; i < model.num_hidden_layers; ++i) {
    pairs += model.Window(i) > 0 ? LayerPairs(trees, model.Window(i)) : full_pairs;
    const int64_t inner = model.IsMoe(i) ? model.num_experts_per_tok * model.moe_intermediate_size
                                         : model.intermediate_size;
    weights += hidden * (2 * queries + 2 * keys) + 3 * hidden * static_cast<double>(inner);
    if (model.IsMoe(i)) weights += hidden * static_cast<double>(model.num_experts);
  }
  const double forward = 2 * weights * tokens + 4 * queries * pairs +
                         2 * hidden * static_cast<double>(model.vocab_size) * predicting;
  return 3 * forward;
}

}  // namespace freshet
