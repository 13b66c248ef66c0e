#include "rollout/engine/draft_lookup.h"

#include <algorithm>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

void AddAll(DraftLookup& lookup, int64_t sample, const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) lookup.Add(sample, token);
}

TEST(DraftLookup, TheLatestOccurrenceOfTheLastTokensGoesOn) {
  DraftLookup lookup({1, 2, 3, 9, 1, 2, 3, 8, 5, 1, 2}, 1, 10);
  EXPECT_THAT(lookup.Propose(0, 4), ElementsAre(3, 8, 5, 1));
  lookup.Add(0, 3);
  EXPECT_THAT(lookup.Propose(0, 3), ElementsAre(8, 5, 1));
  EXPECT_THAT(lookup.Propose(0, 7), ElementsAre(8, 5, 1, 2, 3, 8, 5)) << "after the prompt's end";
  EXPECT_THAT(lookup.Propose(0, 0), IsEmpty());
  lookup.Add(0, 7);
  EXPECT_THAT(lookup.Propose(0, 4), IsEmpty()) << "3, 7 is new";
}

TEST(DraftLookup, MoreTokensInCommonComeFirst) {
  DraftLookup lookup({1, 2, 3, 4, 7, 9, 3, 4, 8, 1, 2, 3}, 1, 10);
  lookup.Add(0, 4);
  EXPECT_THAT(lookup.Propose(0, 1), ElementsAre(7));
}

TEST(DraftLookup, ASampleThatRepeatsItselfGoesOnRepeating) {
  DraftLookup lookup({9}, 1, 10);
  AddAll(lookup, 0, {5, 6, 5, 6});
  EXPECT_THAT(lookup.Propose(0, 5), ElementsAre(5, 6, 5, 6, 5));
}

TEST(DraftLookup, SamplesFollowEachOther) {
  DraftLookup lookup({1}, 3, 10);
  AddAll(lookup, 0, {4, 5, 6, 7});
  AddAll(lookup, 1, {4, 5});
  EXPECT_THAT(lookup.Propose(1, 4), ElementsAre(6, 7));
  EXPECT_THAT(lookup.Propose(0, 4), IsEmpty());
  EXPECT_THAT(lookup.Propose(2, 4), IsEmpty()) << "one token is too little";
}

// The table is smaller than the text, so that most occurrences are displaced.
TEST(DraftLookup, EveryDraftFollowsItsOccurrence) {
  constexpr int64_t kTokens = 40'000;
  DraftLookup lookup({0}, 1, kTokens);
  std::vector<int32_t> text = {0};
  int drafts = 0;
  for (uint64_t i = 0; i < kTokens; ++i) {
    text.push_back(static_cast<int32_t>(RandomBits(1, i) % 90));
    lookup.Add(0, text.back());
    if (i % 100 != 0) continue;
    std::vector<int32_t> found(text.end() - 2, text.end());
    const std::vector<int32_t> draft = lookup.Propose(0, 1);
    if (draft.empty()) continue;
    ++drafts;
    found.push_back(draft[0]);
    EXPECT_NE(std::search(text.begin(), text.end(), found.begin(), found.end()), text.end());
  }
  EXPECT_GT(drafts, 100);
}

TEST(DraftAllowance, RejectedTokensStayFew) {
  for (const uint64_t accepted_of_10 : {0U, 3U, 7U, 10U}) {
    DraftAllowance allowance;
    int64_t tokens = 0, accepted = 0, rejected = 0;
    for (uint64_t pass = 0; pass < 2000; ++pass) {
      const int64_t drafted = allowance.tokens();
      EXPECT_LE(drafted, kMaxDraftTokens);
      int64_t kept = 0;
      while (kept < drafted &&
             RandomBits(2, pass, static_cast<uint64_t>(kept)) % 10 < accepted_of_10) {
        ++kept;
      }
      allowance.Report(drafted, kept);
      tokens += kept + 1;
      accepted += kept;
      rejected += drafted - kept;
      ASSERT_LE(16 * rejected, 16 * 4 + tokens + 8 * accepted);
    }
    EXPECT_GE(rejected, accepted_of_10 == 10 ? 0 : 2000 / 16 - 1) << "it tries again";
    if (accepted_of_10 == 10) {
      EXPECT_EQ(allowance.tokens(), kMaxDraftTokens);
    }
  }
}

}  // namespace
}  // namespace freshet
