#include "rollout/server_engine/sample_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace freshet {
namespace {

using testing::ElementsAre;

GeneratedPiece Piece(std::vector<int32_t> ids, PieceEnd end = PieceEnd::kNone,
                     std::vector<Span> spans = {}) {
  const std::vector<float> logprobs(ids.size(), -0.5F);
  return {std::move(ids), logprobs, end, std::move(spans)};
}

TEST(SampleAnswers, CollectTokensAndSpans) {
  SampleAnswer answer(32, 4, {2});
  ASSERT_TRUE(answer.Add(Piece({5})).ok());
  ASSERT_TRUE(answer.Add(Piece({6, 2}, PieceEnd::kStop, {{{0, 1}, 0, 1}, {{0, 2}, 1, 3}})).ok());
  Response response;
  response.response_ids = {9};
  response.behavior_logprobs = {-1.0F};
  response.loss_mask = {1};
  response.spans = {{{0, 1}, 0, 1}};
  AppendAnswer(answer, 3, false, response);
  EXPECT_THAT(response.response_ids, ElementsAre(9, 5, 6, 2));
  EXPECT_THAT(response.behavior_logprobs, ElementsAre(-1.0F, -0.5F, -0.5F, -0.5F));
  EXPECT_THAT(response.loss_mask, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(response.spans, ElementsAre(Span{{0, 1}, 0, 2}, Span{{0, 2}, 2, 4}));
  EXPECT_TRUE(response.sampling_logprobs.empty());
}

TEST(SampleAnswers, JoinSpansOfPieces) {
  SampleAnswer answer(32, 4, {});
  ASSERT_TRUE(answer.Add(Piece({5}, PieceEnd::kNone, {{{0, 1}, 0, 1}})).ok());
  ASSERT_TRUE(answer.Add(Piece({6, 7}, PieceEnd::kNone, {{{0, 1}, 1, 3}})).ok());
  ASSERT_TRUE(answer.Add(Piece({8}, PieceEnd::kLength, {{{0, 2}, 3, 4}})).ok());
  EXPECT_THAT(answer.spans(), ElementsAre(Span{{0, 1}, 0, 3}, Span{{0, 2}, 3, 4}));
}

TEST(SampleAnswers, CanBeCut) {
  SampleAnswer answer(32, 4, {});
  ASSERT_TRUE(
      answer.Add(Piece({5, 6, 7}, PieceEnd::kAbort, {{{0, 1}, 0, 2}, {{0, 2}, 2, 3}})).ok());
  Response response;
  AppendAnswer(answer, 1, true, response);
  EXPECT_THAT(response.response_ids, ElementsAre(5));
  EXPECT_THAT(response.sampling_logprobs, ElementsAre(-0.5F));
  EXPECT_THAT(response.spans, ElementsAre(Span{{0, 1}, 0, 1}));
}

TEST(SampleAnswers, ThatContradictTheRequestAreErrors) {
  const std::vector<Span> all = {{{0, 1}, 0, 2}};
  struct Case {
    const char* what;
    GeneratedPiece piece;
  };
  GeneratedPiece few_logprobs = Piece({5, 6});
  few_logprobs.logprobs.pop_back();
  GeneratedPiece no_logprob = Piece({5});
  no_logprob.logprobs[0] = -9999.0F;
  GeneratedPiece positive = Piece({5});
  positive.logprobs[0] = 0.5F;
  for (const Case& one : {
           Case{"count", few_logprobs},
           Case{"not finite", no_logprob},
           Case{"above 0", positive},
           Case{"vocabulary", Piece({32})},
           Case{"too many", Piece({1, 1, 1, 1, 1})},
           Case{"short", Piece({1, 1}, PieceEnd::kLength, all)},
           Case{"no stop token", Piece({1, 1}, PieceEnd::kStop, all)},
           Case{"no spans", Piece({1, 1}, PieceEnd::kAbort)},
           Case{"gap", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 1, 2}})},
           Case{"overlap", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 0, 2}, {{0, 2}, 1, 2}})},
           Case{"backwards", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 0, -1}})},
           Case{"beyond", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 0, 3}})},
       }) {
    SampleAnswer answer(32, 4, {2});
    EXPECT_EQ(answer.Add(one.piece).code(), absl::StatusCode::kInternal) << one.what;
  }
  SampleAnswer ended(32, 4, {2});
  ASSERT_TRUE(ended.Add(Piece({}, PieceEnd::kAbort)).ok());
  EXPECT_EQ(ended.Add(Piece({1})).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace freshet
