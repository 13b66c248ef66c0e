#ifndef FRESHET_TRAINER_LEARNER_TRAINING_ROWS_H_
#define FRESHET_TRAINER_LEARNER_TRAINING_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"
#include "job/loss_spec.h"
#include "model/packed_batch.h"

namespace freshet {

// The sequences of a tree, as parts of samples.
struct TreeSource {
  struct Sequence {
    SampleKey sample;
    TokenRange tokens;  // of its response
  };
  std::vector<Sequence> sequences;
  int32_t shared = 0;  // leading tokens of each that are the prefix; 0: the group's prompt is
};

// A training batch as packed trees and per-token columns. A tree is a prompt group; its suffixes
// are the group's responses, or their segments with the same number. A segment is a sequence. The
// columns follow the order of PackedBatch targets.
struct TrainingRows {
  std::vector<PackTree> trees;
  std::vector<size_t> groups;  // the group of each tree
  // samples[t][s]: index in its group of the sample that sequence s of tree t belongs to.
  std::vector<std::vector<size_t>> samples;
  // Per tree, concatenated over its responses.
  struct Columns {
    std::vector<float> behavior_logprobs;
    std::vector<float> loss_mask;  // 0, or how often the token counts in the loss (duplicates.h)
    std::vector<uint8_t> sampled;  // 1: written by the policy, also if its loss is masked
    std::vector<float> advantages;
    std::vector<int64_t> sequence_index;  // within the tree
    int64_t num_sequences = 0;
    int64_t duplicates = 0;  // how often its sequences count in the loss beyond once each
    std::vector<float> proximal_logprobs;  // empty: the current policy is the proximal one
    TreeSource source;

    // Sequences without those whose policy was not asked, which have a tree of their own.
    int64_t SampledSequences() const {
      return std::count(sampled.begin(), sampled.end(), 1) > 0 ? num_sequences : 0;
    }
    int64_t LossTokens() const {
      return std::count_if(loss_mask.begin(), loss_mask.end(), [](float m) { return m > 0; });
    }
    // The loss-bearing tokens, each as often as it counts.
    double LossWeight() const { return std::accumulate(loss_mask.begin(), loss_mask.end(), 0.0); }
  };
  std::vector<Columns> columns;
  std::vector<std::vector<double>> advantages;  // by group and sample
  int64_t loss_tokens = 0;
  int64_t num_sequences = 0;

  // Leaves `groups`, `samples` and `advantages` as they are.
  void Add(PackTree tree, Columns tree_columns) {
    loss_tokens += tree_columns.LossTokens();
    num_sequences += tree_columns.num_sequences;
    trees.push_back(std::move(tree));
    columns.push_back(std::move(tree_columns));
  }
};

// Builds the tree of `columns.source` from `samples`, those of its sequences in their order: also
// sets the columns that samples hold (behavior_logprobs, sequence_index, num_sequences). Pure.
// INVALID_ARGUMENT: tokens that a response does not have, or a sequence or prefix without tokens.
absl::StatusOr<PackTree> BuildTree(const std::vector<const SampleView*>& samples,
                                   TrainingRows::Columns& columns);

// Pure. Advantages are computed over all given groups, because some kinds normalize over the batch.
// INVALID_ARGUMENT for a sample without score, or rewards that ComputeAdvantages rejects.
// With `credit`, each turn has an advantage of its own (turn_returns.h); `advantages` then holds a
// sample's mean over its loss-bearing tokens.
// `by_task`: kinds that normalize over the batch do so over the samples of a task (kTaskField); a
// sample that is alone there gets 0.
// `whole_responses`: responses begin with a prompt of their own, and the group's is not part of the
// sequences. Responses of a group, or their segments with the same number, then share a tree if
// they begin with the same token, whose prefix is what they have in common before the first token
// with a loss. Otherwise INVALID_ARGUMENT for a response with segments.
absl::StatusOr<TrainingRows> MakeTrainingRows(const std::vector<TrainGroup>& groups,
                                              AdvantageKind advantage, bool whole_responses = false,
                                              const std::optional<TurnCredit>& credit = {},
                                              bool by_task = false);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_TRAINING_ROWS_H_
