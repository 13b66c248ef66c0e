#include "trainer/learner/training_rows.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/task_field.h"
#include "trainer/learner/turn_returns.h"
#include "trainer/loss/advantage.h"

namespace freshet {
namespace {

// A tree to build: a sequence of each of some samples of a group, and how many of their tokens are
// its prefix.
struct Branches {
  struct Sequence {
    size_t sample = 0;
    TokenRange tokens;
  };
  std::vector<Sequence> sequences;
  int32_t shared = 0;  // leading tokens
};

// How many tokens the sequences have in common before the first token with a loss; each keeps at
// least one token.
int32_t SharedTokens(const TrainGroup& group, const std::vector<Branches::Sequence>& sequences) {
  const auto response = [&group](const Branches::Sequence& sequence) -> const Response& {
    return *group.samples[sequence.sample].sample.response;
  };
  const auto [first_begin, first_end] = sequences[0].tokens;
  const int32_t* const first = response(sequences[0]).response_ids.data() + first_begin;
  int32_t shared = first_end - first_begin - 1;
  for (const Branches::Sequence& sequence : sequences) {
    const auto [begin, end] = sequence.tokens;
    const int32_t* const ids = response(sequence).response_ids.data() + begin;
    const uint8_t* const mask = response(sequence).loss_mask.data() + begin;
    const int32_t limit = std::min(shared, end - begin - 1);
    int32_t same = 0;
    while (same < limit && mask[same] == 0 && ids[same] == first[same]) ++same;
    shared = same;
  }
  return shared;
}

// The trees of responses that follow the group's prompt.
std::vector<Branches> OneTree(const TrainGroup& group) {
  Branches branches;
  branches.sequences.reserve(group.samples.size());
  for (size_t s = 0; s < group.samples.size(); ++s) {
    branches.sequences.push_back({s, SegmentsOf(*group.samples[s].sample.response).front()});
  }
  return {std::move(branches)};
}

// The trees of whole responses. A tree has at most one segment of a sample, so that its size has
// the same bound as without segments. Samples whose policy was not asked have a tree of their own,
// so that they shorten no prefix.
std::vector<Branches> Divide(const TrainGroup& group) {
  std::map<std::pair<size_t, int32_t>, Branches> by_token;  // by number and first token
  for (size_t s = 0; s < group.samples.size(); ++s) {
    const Response& response = *group.samples[s].sample.response;
    const std::vector<TokenRange> segments = SegmentsOf(response);
    for (size_t k = 0; k < segments.size(); ++k) {
      const int32_t token = response.response_ids[static_cast<size_t>(segments[k].begin)];
      const size_t number = response.finish == FinishReason::kNotAsked ? kMaxSegments : k;
      by_token[{number, token}].sequences.push_back({s, segments[k]});
    }
  }
  std::vector<Branches> trees;
  trees.reserve(by_token.size());
  for (auto& [key, branches] : by_token) {
    branches.shared = SharedTokens(group, branches.sequences);
    trees.push_back(std::move(branches));
  }
  return trees;
}

// The advantages of a sample's turns.
struct SampleAdvantages {
  std::vector<size_t> ends;
  std::vector<double> values;

  // Of token t. `ends` are few.
  double At(size_t t) const {
    size_t k = 0;
    while (k + 1 < ends.size() && t >= ends[k]) ++k;
    return values[k];
  }
};
using TokenAdvantages = std::vector<std::vector<SampleAdvantages>>;  // by group and sample

// Groups that are normalized together: of each task, or all.
std::vector<std::vector<size_t>> Parts(const std::vector<TrainGroup>& groups, bool by_task) {
  std::map<std::string, std::vector<size_t>> parts;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Prompt& prompt = *groups[g].samples.front().sample.prompt;
    parts[by_task ? TaskOfRow(prompt.attributes) : ""].push_back(g);
  }
  std::vector<std::vector<size_t>> result;
  result.reserve(parts.size());
  for (auto& [task, part] : parts) result.push_back(std::move(part));
  return result;
}

absl::StatusOr<std::vector<std::vector<std::vector<double>>>> PartAdvantages(
    AdvantageKind kind, const std::vector<std::vector<std::vector<double>>>& returns,
    bool by_task) {
  if (by_task && returns.size() == 1 && returns[0].size() == 1) {
    const std::vector<double> zeros(returns[0][0].size());
    return std::vector<std::vector<std::vector<double>>>{{zeros}};
  }
  return ComputeTurnAdvantages(kind, returns);
}

absl::StatusOr<TokenAdvantages> OfTurns(const std::vector<TrainGroup>& groups, AdvantageKind kind,
                                        const std::optional<TurnCredit>& credit, bool by_task) {
  TokenAdvantages result;
  std::vector<std::vector<std::vector<double>>> all_returns;
  for (const TrainGroup& group : groups) {
    std::vector<SampleAdvantages>& samples = result.emplace_back();
    auto& group_returns = all_returns.emplace_back();
    for (const TrainSample& sample : group.samples) {
      SampleAdvantages& turns = samples.emplace_back();
      std::vector<double>& returns = group_returns.emplace_back();
      const Response& response = *sample.sample.response;
      const auto tokens = static_cast<int32_t>(response.response_ids.size());
      const Score& score = *sample.sample.score;
      for (const Turn& turn : credit.has_value()
                                  ? TurnReturns(score, tokens, credit->discount, response.segments)
                                  : std::vector<Turn>{{0, tokens, score.reward}}) {
        turns.ends.push_back(static_cast<size_t>(turn.end));
        returns.push_back(turn.turn_return);
      }
    }
  }
  for (const std::vector<size_t>& part : Parts(groups, by_task)) {
    std::vector<std::vector<std::vector<double>>> returns;
    returns.reserve(part.size());
    for (const size_t g : part) returns.push_back(all_returns[g]);
    FRESHET_ASSIGN_OR_RETURN(const auto advantages, PartAdvantages(kind, returns, by_task));
    for (size_t i = 0; i < part.size(); ++i) {
      std::vector<SampleAdvantages>& samples = result[part[i]];
      for (size_t s = 0; s < samples.size(); ++s) samples[s].values = advantages[i][s];
    }
  }
  return result;
}

// Of each sample, over its loss-bearing tokens.
std::vector<std::vector<double>> Means(const std::vector<TrainGroup>& groups,
                                       const TokenAdvantages& by_token) {
  std::vector<std::vector<double>> means;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<double>& group_means = means.emplace_back();
    for (size_t s = 0; s < groups[g].samples.size(); ++s) {
      const SampleAdvantages& advantages = by_token[g][s];
      const std::vector<uint8_t>& mask = groups[g].samples[s].loss_mask;
      double sum = 0;
      int64_t tokens = 0;
      for (size_t t = 0; t < mask.size() && advantages.values.size() > 1; ++t) {
        if (mask[t] == 0) continue;
        sum += advantages.At(t);
        ++tokens;
      }
      group_means.push_back(tokens > 0 ? sum / static_cast<double>(tokens)
                                       : advantages.values.front());
    }
  }
  return means;
}

}  // namespace

absl::StatusOr<PackTree> BuildTree(const std::vector<const SampleView*>& samples,
                                   TrainingRows::Columns& columns) {
  const auto& [sequences, shared] = columns.source;
  PackTree tree;
  if (shared == 0 && !samples.empty()) tree.prefix = samples.front()->prompt->prompt_ids;
  for (size_t s = 0; s < samples.size(); ++s) {
    const Response& response = *samples[s]->response;
    const auto [first, end] = sequences[s].tokens;
    const auto tokens = std::min(response.response_ids.size(), response.behavior_logprobs.size());
    if (first < 0 || shared < 0 || end > static_cast<int64_t>(tokens) ||
        int64_t{first} + shared >= end) {
      return InvalidArgument("sample ", samples[s]->uid, " has no tokens ", first, " + ", shared,
                             " to ", end);
    }
    const auto begin = first + shared;
    const auto ids = response.response_ids.begin();
    if (shared > 0 && s == 0) tree.prefix.assign(ids + first, ids + begin);
    tree.suffixes.emplace_back(ids + begin, ids + end);
    columns.behavior_logprobs.insert(columns.behavior_logprobs.end(),
                                     response.behavior_logprobs.begin() + begin,
                                     response.behavior_logprobs.begin() + end);
    columns.sequence_index.insert(columns.sequence_index.end(), static_cast<size_t>(end - begin),
                                  columns.num_sequences++);
  }
  if (tree.prefix.empty()) return InvalidArgument("a tree without a prefix");
  return tree;
}

absl::StatusOr<TrainingRows> MakeTrainingRows(const std::vector<TrainGroup>& groups,
                                              AdvantageKind advantage, bool whole_responses,
                                              const std::optional<TurnCredit>& credit,
                                              bool by_task) {
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      if (sample.sample.score == nullptr) {
        return InvalidArgument("sample ", sample.sample.uid, " has no score");
      }
      if (!whole_responses && !sample.sample.response->segments.empty()) {
        return InvalidArgument("sample ", sample.sample.uid,
                               " has segments, but its response follows a prompt");
      }
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const TokenAdvantages by_token,
                           OfTurns(groups, advantage, credit, by_task));
  TrainingRows rows;
  rows.advantages = Means(groups, by_token);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const Branches& branches : whole_responses ? Divide(groups[g]) : OneTree(groups[g])) {
      TrainingRows::Columns columns;
      columns.source.shared = branches.shared;
      std::vector<size_t>& samples = rows.samples.emplace_back();
      std::vector<const SampleView*> views;
      for (const auto& [s, tokens] : branches.sequences) {
        const SampleView& view = groups[g].samples[s].sample;
        if (whole_responses && branches.shared == 0) {
          return InvalidArgument("sample ", view.uid, " begins with a sampled token");
        }
        columns.source.sequences.push_back({view.key, tokens});
        views.push_back(&view);
        samples.push_back(s);
      }
      FRESHET_ASSIGN_OR_RETURN(PackTree tree, BuildTree(views, columns));
      for (const auto& [s, tokens] : branches.sequences) {
        const TrainSample& sample = groups[g].samples[s];
        const auto end = static_cast<size_t>(tokens.end);
        const size_t begin =
            static_cast<size_t>(tokens.begin) + static_cast<size_t>(branches.shared);
        for (size_t t = begin; t < end; ++t) {
          columns.sampled.push_back(sample.sample.response->loss_mask[t]);
          columns.loss_mask.push_back(sample.loss_mask[t] != 0 ? 1.0F : 0.0F);
          columns.advantages.push_back(static_cast<float>(by_token[g][s].At(t)));
        }
      }
      rows.groups.push_back(g);
      rows.Add(std::move(tree), std::move(columns));
    }
  }
  return rows;
}

}  // namespace freshet
