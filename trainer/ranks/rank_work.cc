#include "trainer/ranks/rank_work.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using trainer::v1::RankReport;
using trainer::v1::RankWork;

// Tokens with the same loss mask and advantage, which are those of a turn as a rule.
void AddRuns(const TrainingRows::Columns& columns, RankWork::Tree& proto) {
  const size_t tokens = columns.loss_mask.size();
  for (size_t begin = 0; begin < tokens;) {
    const float mask = columns.loss_mask[begin];
    const float advantage = columns.advantages[begin];
    size_t end = begin + 1;
    while (end < tokens && columns.loss_mask[end] == mask && columns.advantages[end] == advantage) {
      ++end;
    }
    proto.add_run_lengths(static_cast<int32_t>(end - begin));
    proto.add_run_loss_masks(mask);
    proto.add_run_advantages(advantage);
    begin = end;
  }
}

RankWork::Tree TreeToProto(const PackTree& tree, const TrainingRows::Columns& columns,
                           bool by_key) {
  RankWork::Tree proto;
  if (by_key) {
    proto.set_shared(columns.source.shared);
    for (const auto& [sample, tokens] : columns.source.sequences) {
      RankWork::Sequence& sequence = *proto.add_sequences();
      sequence.set_ordinal(sample.ordinal);
      sequence.set_attempt(sample.attempt);
      sequence.set_index(sample.index);
      sequence.set_begin(tokens.begin);
      sequence.set_end(tokens.end);
    }
  } else {
    proto.mutable_prefix()->Assign(tree.prefix.begin(), tree.prefix.end());
    for (const std::vector<int32_t>& suffix : tree.suffixes) {
      proto.add_suffix_lengths(static_cast<int32_t>(suffix.size()));
      proto.mutable_suffix_tokens()->Add(suffix.begin(), suffix.end());
    }
    proto.mutable_behavior_logprobs()->Assign(columns.behavior_logprobs.begin(),
                                              columns.behavior_logprobs.end());
  }
  proto.mutable_proximal_logprobs()->Assign(columns.proximal_logprobs.begin(),
                                            columns.proximal_logprobs.end());
  AddRuns(columns, proto);
  return proto;
}

// The tree and the columns that samples hold, from the tokens in `proto`.
absl::StatusOr<PackTree> TokensFromProto(const RankWork::Tree& proto,
                                         TrainingRows::Columns& columns) {
  PackTree tree;
  tree.prefix.assign(proto.prefix().begin(), proto.prefix().end());
  const int tokens = proto.suffix_tokens_size();
  int begin = 0;
  for (const int32_t length : proto.suffix_lengths()) {
    if (length < 1 || length > tokens - begin) return DataLoss("a suffix of ", length, " tokens");
    const auto first = proto.suffix_tokens().begin() + begin;
    tree.suffixes.emplace_back(first, first + length);
    begin += length;
    columns.sequence_index.insert(columns.sequence_index.end(), static_cast<size_t>(length),
                                  columns.num_sequences++);
  }
  if (begin != tokens || proto.behavior_logprobs_size() != tokens || tree.prefix.empty()) {
    return DataLoss("a tree whose columns do not fit its ", tokens, " tokens");
  }
  columns.behavior_logprobs.assign(proto.behavior_logprobs().begin(),
                                   proto.behavior_logprobs().end());
  return tree;
}

// The columns that rank 0 decides.
absl::Status DecisionsFromProto(const RankWork::Tree& proto, TrainingRows::Columns& columns) {
  const size_t tokens = columns.behavior_logprobs.size();
  const int runs = proto.run_lengths_size();
  bool fits = proto.run_loss_masks_size() == runs && proto.run_advantages_size() == runs;
  for (int run = 0; run < runs && fits; ++run) {
    const int64_t length = proto.run_lengths(run);
    fits = length > 0 && static_cast<uint64_t>(length) <= tokens - columns.loss_mask.size();
    if (!fits) break;
    const auto count = static_cast<size_t>(length);
    columns.loss_mask.insert(columns.loss_mask.end(), count, proto.run_loss_masks(run));
    columns.advantages.insert(columns.advantages.end(), count, proto.run_advantages(run));
  }
  const auto proximal = static_cast<size_t>(proto.proximal_logprobs_size());
  if (!fits || tokens == 0 || columns.loss_mask.size() != tokens ||
      (proximal != tokens && proximal != 0)) {
    return DataLoss("a tree whose columns do not fit its ", tokens, " tokens");
  }
  columns.proximal_logprobs.assign(proto.proximal_logprobs().begin(),
                                   proto.proximal_logprobs().end());
  return absl::OkStatus();
}

SampleKey KeyOf(const RankWork::Sequence& sequence) {
  return {sequence.ordinal(), sequence.attempt(), sequence.index()};
}

// The samples of the sequences of all trees, each once.
absl::StatusOr<std::map<SampleKey, SampleView>> SamplesOf(const RankWork& work,
                                                          const ReadSamples& read) {
  std::map<SampleKey, SampleView> samples;
  for (const RankWork::Tree& tree : work.trees()) {
    for (const RankWork::Sequence& sequence : tree.sequences()) samples[KeyOf(sequence)];
  }
  if (samples.empty()) return samples;
  std::vector<SampleKey> keys;
  keys.reserve(samples.size());
  for (const auto& [key, sample] : samples) keys.push_back(key);
  FRESHET_ASSIGN_OR_RETURN(std::vector<SampleView> views, read(keys));
  if (views.size() != keys.size()) return DataLoss("samples are missing");
  for (size_t i = 0; i < keys.size(); ++i) samples[keys[i]] = std::move(views[i]);
  return samples;
}

}  // namespace

RankWork ToProto(RankWork::Kind kind, int64_t step, const Minibatch& share, bool by_key) {
  RankWork work;
  work.set_kind(kind);
  work.set_step(step);
  work.set_total_tokens(share.normalizer.total_tokens);
  work.set_total_sequences(share.normalizer.total_sequences);
  work.set_max_tokens(share.normalizer.max_tokens);
  for (size_t t = 0; t < share.rows.trees.size(); ++t) {
    *work.add_trees() = TreeToProto(share.rows.trees[t], share.rows.columns[t], by_key);
  }
  return work;
}

absl::StatusOr<Minibatch> ShareOf(const RankWork& work, const ReadSamples& read) {
  FRESHET_ASSIGN_OR_RETURN(const auto samples, SamplesOf(work, read));
  Minibatch share;
  share.normalizer = {work.total_tokens(), work.total_sequences(), work.max_tokens()};
  for (const RankWork::Tree& proto : work.trees()) {
    TrainingRows::Columns columns;
    std::vector<const SampleView*> views;
    for (const RankWork::Sequence& sequence : proto.sequences()) {
      const SampleKey key = KeyOf(sequence);
      columns.source.sequences.push_back({key, {sequence.begin(), sequence.end()}});
      views.push_back(&samples.at(key));
    }
    columns.source.shared = proto.shared();
    absl::StatusOr<PackTree> tree =
        views.empty() ? TokensFromProto(proto, columns) : BuildTree(views, columns);
    if (!tree.ok()) return DataLoss(Message(tree.status()));
    FRESHET_RETURN_IF_ERROR(DecisionsFromProto(proto, columns));
    share.rows.Add(*std::move(tree), std::move(columns));
  }
  return share;
}

const char* PhaseText(RankPhase phase) {
  switch (phase) {
    case RankPhase::kIdle:
      return "waits for work";
    case RankPhase::kReading:
      return "reads its samples";
    case RankPhase::kComputing:
      return "computes";
    case RankPhase::kExchanging:
      return "exchanges outcomes";
    case RankPhase::kSumming:
    case RankPhase::kReducing:
      return "sums gradients";
    case RankPhase::kGathering:
      return "gathers weights or state";
    case RankPhase::kUpdating:
      return "updates weights";
    case RankPhase::kSaving:
      return "waits until a checkpoint is written";
  }
  return "";
}

const char* CollectiveText(RankPhase phase) {
  switch (phase) {
    case RankPhase::kExchanging:
      return "all-gather of outcomes";
    case RankPhase::kSumming:
      return "all-reduce of gradients";
    case RankPhase::kReducing:
      return "reduce-scatter of gradients";
    case RankPhase::kGathering:
      return "gather of weights or state";
    default:
      return "";
  }
}

RankState ToRankState(const RankReport& report) {
  const auto state = [&report]() -> std::string {
    switch (report.state()) {
      case RankReport::STATE_IDLE:
        return PhaseText(RankPhase::kIdle);
      case RankReport::STATE_TRAINING:
        return report.phase().empty() ? "begins" : report.phase();
      case RankReport::STATE_FAILED:
      case RankReport::STATE_LEFT:
        return "ends";
      default:
        return "joins";
    }
  };
  return {report.rank(), state(), report.step(), report.last_collective()};
}

std::string LateRanks(RankPhase own, int64_t step,
                      const std::vector<trainer::v1::RankReport>& others) {
  if (*CollectiveText(own) == '\0') return "";
  std::vector<std::string> late;
  for (const RankReport& other : others) {
    const RankState rank = ToRankState(other);
    if (rank.step == step && rank.state == PhaseText(own)) continue;
    late.push_back(StrCat("rank ", rank.rank, " (", rank.state, ")"));
  }
  if (late.empty()) return "";
  return StrCat("step ", step, ": ", absl::StrJoin(late, ", "));
}

int64_t SuffixTokens(const Minibatch& share) {
  int64_t tokens = 0;
  for (const TrainingRows::Columns& columns : share.rows.columns) {
    tokens += std::ssize(columns.loss_mask);
  }
  return tokens;
}

absl::StatusOr<std::vector<float>> GatherProximal(const PolicyLearner& learner,
                                                  Communicator& communicator, Minibatch& share,
                                                  int64_t largest_share) {
  if (SuffixTokens(share) > largest_share) return DataLoss("a share larger than the largest");
  if (const absl::Status computed = learner.ComputeProximal(share); !computed.ok()) {
    // The others would wait for this rank.
    communicator.Abort(Message(computed));
    return computed;
  }
  std::vector<float> own;
  for (const TrainingRows::Columns& columns : share.rows.columns) {
    own.insert(own.end(), columns.proximal_logprobs.begin(), columns.proximal_logprobs.end());
  }
  own.resize(static_cast<size_t>(largest_share));
  std::vector<float> all(own.size() * static_cast<size_t>(communicator.size()));
  FRESHET_RETURN_IF_ERROR(communicator.AllGather(
      std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)), kShareTimeout));
  return all;
}

}  // namespace freshet
