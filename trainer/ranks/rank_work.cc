#include "trainer/ranks/rank_work.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using trainer::v1::RankReport;
using trainer::v1::RankWork;

RankWork::Tree TreeToProto(const PackTree& tree, const TrainingRows::Columns& columns) {
  RankWork::Tree proto;
  proto.mutable_prefix()->Assign(tree.prefix.begin(), tree.prefix.end());
  for (const std::vector<int32_t>& suffix : tree.suffixes) {
    proto.add_suffix_lengths(static_cast<int32_t>(suffix.size()));
    proto.mutable_suffix_tokens()->Add(suffix.begin(), suffix.end());
  }
  const auto assign = [](auto* to, const std::vector<float>& from) {
    to->Assign(from.begin(), from.end());
  };
  assign(proto.mutable_behavior_logprobs(), columns.behavior_logprobs);
  assign(proto.mutable_loss_mask(), columns.loss_mask);
  assign(proto.mutable_advantages(), columns.advantages);
  assign(proto.mutable_proximal_logprobs(), columns.proximal_logprobs);
  return proto;
}

absl::Status TreeFromProto(const RankWork::Tree& proto, PackTree& tree,
                           TrainingRows::Columns& columns) {
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
  const int proximal = proto.proximal_logprobs_size();
  if (begin != tokens || proto.behavior_logprobs_size() != tokens ||
      proto.loss_mask_size() != tokens || proto.advantages_size() != tokens ||
      (proximal != tokens && proximal != 0) || tokens == 0 || tree.prefix.empty()) {
    return DataLoss("a tree whose columns do not fit its ", tokens, " tokens");
  }
  const auto assign = [](std::vector<float>& to, const auto& from) {
    to.assign(from.begin(), from.end());
  };
  assign(columns.behavior_logprobs, proto.behavior_logprobs());
  assign(columns.loss_mask, proto.loss_mask());
  assign(columns.advantages, proto.advantages());
  assign(columns.proximal_logprobs, proto.proximal_logprobs());
  return absl::OkStatus();
}

}  // namespace

RankWork ToProto(RankWork::Kind kind, int64_t step, const Minibatch& share) {
  RankWork work;
  work.set_kind(kind);
  work.set_step(step);
  work.set_total_tokens(share.normalizer.total_tokens);
  work.set_total_sequences(share.normalizer.total_sequences);
  work.set_max_tokens(share.normalizer.max_tokens);
  for (size_t t = 0; t < share.rows.trees.size(); ++t) {
    *work.add_trees() = TreeToProto(share.rows.trees[t], share.rows.columns[t]);
  }
  return work;
}

absl::StatusOr<Minibatch> ShareOf(const RankWork& work) {
  Minibatch share;
  share.normalizer = {work.total_tokens(), work.total_sequences(), work.max_tokens()};
  for (const RankWork::Tree& tree : work.trees()) {
    PackTree tokens;
    TrainingRows::Columns columns;
    FRESHET_RETURN_IF_ERROR(TreeFromProto(tree, tokens, columns));
    share.rows.Add(std::move(tokens), std::move(columns));
  }
  return share;
}

const char* PhaseText(RankPhase phase) {
  switch (phase) {
    case RankPhase::kIdle:
      return "waits for work";
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
