#include "trainer/learner/token_weights.h"

#include <algorithm>
#include <memory>
#include <string>

namespace freshet {
namespace {

// The text of some tokens, and the bytes [begin, end) that each stands for. Tokens that make a
// character together stand for the whole of it.
struct DecodedTurn {
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  std::string text;
  std::vector<Range> ranges;
};

DecodedTurn Decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const std::unique_ptr<StreamDecoder> decoder =
      tokenizer.MakeStreamDecoder(/*skip_special=*/false);
  DecodedTurn turn;
  turn.ranges.resize(ids.size());
  size_t open = 0;  // the first token whose text is not complete
  const auto add = [&](const std::string& piece, size_t end) {
    const size_t begin = turn.text.size();
    turn.text += piece;
    for (; open < end; ++open) turn.ranges[open] = {begin, turn.text.size()};
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = decoder->Push(ids[i]);
    if (!piece.empty()) add(piece, i + 1);
  }
  add(decoder->Finish(), ids.size());
  return turn;
}

// Weighs the tokens from `begin` on, which are `ids`.
int64_t WeighTurn(const std::vector<TokenWeight>& weights, const Tokenizer& tokenizer,
                  const std::vector<int32_t>& ids, size_t begin, TrainingRows::Columns& columns) {
  const DecodedTurn turn = Decode(tokenizer, ids);
  const std::vector<WeighedPart> parts = FindParts(turn.text, weights);
  int64_t weighed = 0;
  auto part = parts.begin();
  for (size_t i = 0; i < ids.size(); ++i) {
    const DecodedTurn::Range& range = turn.ranges[i];
    while (part != parts.end() && part->end <= range.begin) ++part;
    if (part == parts.end()) break;
    if (range.end <= part->begin || columns.loss_mask[begin + i] == 0) continue;
    float& advantage = columns.advantages[begin + i];
    advantage = static_cast<float>(advantage * part->weight);
    ++weighed;
  }
  return weighed;
}

}  // namespace

std::vector<WeighedPart> FindParts(std::string_view text, const std::vector<TokenWeight>& weights) {
  std::vector<WeighedPart> parts;
  std::vector<size_t> next;  // where each `begin` is next
  next.reserve(weights.size());
  for (const TokenWeight& weight : weights) next.push_back(text.find(weight.begin));
  while (!next.empty()) {
    const auto first = std::min_element(next.begin(), next.end());
    if (*first == std::string_view::npos) break;
    const TokenWeight& weight = weights[static_cast<size_t>(first - next.begin())];
    const size_t end =
        weight.end.empty() ? text.npos : text.find(weight.end, *first + weight.begin.size());
    parts.push_back(
        {*first, end == text.npos ? text.size() : end + weight.end.size(), weight.weight});
    for (size_t w = 0; w < next.size(); ++w) {
      if (next[w] < parts.back().end) next[w] = text.find(weights[w].begin, parts.back().end);
    }
  }
  return parts;
}

int64_t WeighTokens(const std::vector<TokenWeight>& weights, const Tokenizer& tokenizer,
                    TrainingRows& rows) {
  int64_t weighed = 0;
  std::vector<int32_t> ids;
  for (size_t tree = 0; tree < rows.trees.size(); ++tree) {
    TrainingRows::Columns& columns = rows.columns[tree];
    size_t t = 0;  // of the tree
    for (const std::vector<int32_t>& suffix : rows.trees[tree].suffixes) {
      ids.clear();
      for (const int32_t id : suffix) {
        if (columns.sampled[t++] != 0) {
          ids.push_back(id);
        } else if (!ids.empty()) {
          weighed += WeighTurn(weights, tokenizer, ids, t - 1 - ids.size(), columns);
          ids.clear();
        }
      }
      if (!ids.empty()) weighed += WeighTurn(weights, tokenizer, ids, t - ids.size(), columns);
    }
  }
  return weighed;
}

}  // namespace freshet
