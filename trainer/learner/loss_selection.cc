#include "trainer/learner/loss_selection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "trainer/learner/token_weights.h"
#include "trainer/learner/training_rows.h"

namespace freshet {
namespace {

// Tokens [begin, end) of a tree.
struct TreeTokens {
  size_t tree = 0;
  size_t begin = 0;
  size_t end = 0;
};

// Sums over the loss-bearing tokens of a turn or sample. A sample may have several sequences.
struct ScoredTokens {
  std::vector<TreeTokens> parts;
  int64_t tokens = 0;
  double surprisal = 0;  // nats
  double advantage = 0;

  double entropy() const { return surprisal / static_cast<double>(tokens); }
  void Take(const TrainingRows::Columns& columns, size_t t) {
    parts.back().end = t + 1;
    if (columns.loss_mask[t] == 0) return;
    ++tokens;
    surprisal -= columns.behavior_logprobs[t];
    advantage += columns.advantages[t];
  }
};

// The turns and samples that have loss-bearing tokens.
struct SampledParts {
  std::vector<ScoredTokens> turns;    // in the order of trees and tokens
  std::vector<ScoredTokens> samples;  // in the order of groups and samples
};

SampledParts PartsOf(const TrainingRows& rows) {
  SampledParts parts;
  std::map<std::pair<size_t, size_t>, ScoredTokens> samples;  // by group and sample
  for (size_t tree = 0; tree < rows.trees.size(); ++tree) {
    const TrainingRows::Columns& columns = rows.columns[tree];
    ScoredTokens turn;
    ScoredTokens* sample = nullptr;
    const auto finish_turn = [&turn, &parts] {
      if (turn.tokens > 0) parts.turns.push_back(std::move(turn));
      turn = {};
    };
    const size_t size = columns.loss_mask.size();
    for (size_t t = 0; t < size; ++t) {
      const int64_t sequence = columns.sequence_index[t];
      if (sample == nullptr) {
        sample = &samples[{rows.groups[tree], rows.samples[tree][static_cast<size_t>(sequence)]}];
        sample->parts.push_back({tree, t, t});
      }
      if (turn.parts.empty()) turn.parts.push_back({tree, t, t});
      sample->Take(columns, t);
      if (columns.sampled[t] != 0) turn.Take(columns, t);
      const bool last = t + 1 == size || columns.sequence_index[t + 1] != sequence;
      if (columns.sampled[t] == 0 || last) finish_turn();
      if (last) sample = nullptr;
    }
  }
  for (auto& [place, sample] : samples) {
    if (sample.tokens > 0) parts.samples.push_back(std::move(sample));
  }
  return parts;
}

// The given parts, the one with the highest entropy first.
std::vector<const ScoredTokens*> ByEntropy(std::vector<const ScoredTokens*> parts) {
  std::stable_sort(parts.begin(), parts.end(), [](const ScoredTokens* a, const ScoredTokens* b) {
    return a->entropy() > b->entropy();
  });
  return parts;
}

void Mask(const ScoredTokens& scored, TrainingRows& rows) {
  for (const TreeTokens& part : scored.parts) {
    std::vector<float>& mask = rows.columns[part.tree].loss_mask;
    std::fill(mask.begin() + static_cast<std::ptrdiff_t>(part.begin),
              mask.begin() + static_cast<std::ptrdiff_t>(part.end), 0.0F);
  }
}

int64_t MaskTurns(double share, const std::vector<ScoredTokens>& turns, TrainingRows& rows) {
  if (share >= 1) return 0;
  std::map<size_t, std::vector<const ScoredTokens*>> by_group;
  for (const ScoredTokens& turn : turns) {
    by_group[rows.groups[turn.parts.front().tree]].push_back(&turn);
  }
  int64_t masked = 0;
  for (auto& [group, of_group] : by_group) {
    const std::vector<const ScoredTokens*> sorted = ByEntropy(std::move(of_group));
    // 0.1 * 30 is more than 3.
    const auto kept =
        static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size()) - 1e-9));
    for (size_t i = std::max<size_t>(kept, 1); i < sorted.size(); ++i, ++masked) {
      Mask(*sorted[i], rows);
    }
  }
  return masked;
}

// The share of the samples with a negative advantage that bear no loss.
double MaskedShare(const EntropyControl& control, double entropy) {
  if (entropy <= control.low) return 0;
  if (entropy >= control.high) return 1;
  return (entropy - control.low) / (control.high - control.low);
}

int64_t MaskNegatives(double share, const std::vector<ScoredTokens>& samples, TrainingRows& rows) {
  std::vector<const ScoredTokens*> negatives;
  for (const ScoredTokens& sample : samples) {
    if (sample.advantage < 0) negatives.push_back(&sample);
  }
  negatives = ByEntropy(std::move(negatives));
  const int64_t masked = std::llround(share * static_cast<double>(negatives.size()));
  for (int64_t i = 0; i < masked; ++i) Mask(*negatives[static_cast<size_t>(i)], rows);
  return masked;
}

int64_t AllLossTokens(const TrainingRows& rows) {
  int64_t tokens = 0;
  for (const TrainingRows::Columns& columns : rows.columns) tokens += columns.LossTokens();
  return tokens;
}

}  // namespace

absl::StatusOr<LossSelection> SelectLossTokens(const LossSpec& spec, const Tokenizer* tokenizer,
                                               TrainingRows& rows) {
  if (!spec.token_weights.empty() && tokenizer == nullptr) {
    return InvalidArgument("loss.token_weights: the trainer has no tokenizer");
  }
  const SampledParts parts = PartsOf(rows);
  LossSelection selection;
  for (const ScoredTokens& sample : parts.samples) {
    selection.sampled_entropy += sample.entropy() / static_cast<double>(parts.samples.size());
  }
  const int64_t before = AllLossTokens(rows);
  selection.masked_turns = MaskTurns(spec.turn_entropy_share, parts.turns, rows);
  if (spec.entropy_control.has_value()) {
    const double share = MaskedShare(*spec.entropy_control, selection.sampled_entropy);
    selection.masked_samples = MaskNegatives(share, parts.samples, rows);
  }
  rows.loss_tokens = AllLossTokens(rows);
  selection.masked_tokens = before - rows.loss_tokens;
  if (!spec.token_weights.empty()) {
    selection.weighted_tokens = WeighTokens(spec.token_weights, *tokenizer, rows);
  }
  return selection;
}

}  // namespace freshet
