#include "rollout/sessions/session.h"

#include "datastore/response_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rollout/sessions/toy_chat_tokenizer.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kEnd = ToyChatTokenizer::kEnd;
constexpr char kUser[] = R"([{"role":"user","content":"hi"}])";
constexpr char kAnswer[] = R"({"role":"assistant","content":"xy"})";
constexpr char kTool[] = R"([{"role":"user","content":"hi"},{"role":"assistant","content":"xy"},)"
                         R"({"role":"tool","content":"7"}])";

class SessionTest : public testing::Test {
 protected:
  static SessionOptions Options(int32_t max_tokens = 100) {
    SessionOptions options;
    options.seed = 5;
    options.ordinal = 6;
    options.sample_index = 7;
    options.sampling.max_new_tokens = max_tokens;
    options.sampling.stop_ids = {kEnd};
    return options;
  }
  absl::StatusOr<SessionTurn> Begin(Session& session, const std::string& messages,
                                    const std::string& digest = "") {
    SessionRequest request;
    request.chat = true;
    request.digest = digest;
    request.conversation.messages = messages;
    request.conversation.add_generation_prompt = true;
    const ChatRequest first = request.conversation;
    return Opened(session.Begin(std::move(request), [&] { return tokenizer_.EncodeChat(first); }));
  }
  absl::StatusOr<SessionTurn> Complete(Session& session, const std::string& text) {
    SessionRequest request;
    request.text = text;
    return Opened(session.Begin(
        std::move(request), [&] { return tokenizer_.Encode(text, SpecialTokens::kRecognized); }));
  }
  absl::StatusOr<SessionTurn> Opened(absl::StatusOr<SessionTurn> turn) {
    if (turn.ok()) latest_ = turn->request;
    return turn;
  }
  // Answers the latest request.
  void Answer(Session& session, const std::vector<int32_t>& ids, int64_t version,
              const std::string& answer, FinishReason finish = FinishReason::kStop) {
    AnswerTo(latest_, session, ids, version, answer, finish);
  }
  // Samples ids with log-probs -1, -2, ...
  static void AnswerTo(int64_t request, Session& session, const std::vector<int32_t>& ids,
                       int64_t version, const std::string& answer,
                       FinishReason finish = FinishReason::kStop) {
    float logprob = 0;
    for (const int32_t& id : ids) {
      GeneratedToken token;
      token.sample_index = 7;
      token.token.id = id;
      token.token.logprob = token.token.sampling_logprob = --logprob;
      token.policy = {0, version};
      if (&id == &ids.back()) token.finish = finish;
      EXPECT_TRUE(session.Add(request, token));
    }
    session.End(request, absl::OkStatus(), answer);
  }

  const ToyChatTokenizer tokenizer_{};
  int64_t latest_ = 0;  // request
};

TEST_F(SessionTest, RecordsSampledTokensWithLossAndEverythingElseWithout) {
  Session session(Options(), tokenizer_);
  const absl::StatusOr<SessionTurn> first = Begin(session, kUser);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(first->prompt_ids, ElementsAre('u', 'h', 'i', kEnd, '\n', 'a'));
  EXPECT_EQ(first->generation.sampling.max_new_tokens, 94);
  Answer(session, {'x', 'y', kEnd}, 3, kAnswer);
  const absl::StatusOr<SessionTurn> second = Begin(session, kTool);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(second->generation.prompt_ids, ElementsAre('u', 'h', 'i', kEnd, '\n', 'a'));
  ASSERT_EQ(second->generation.partials.size(), 1U);
  // The model has written the end of its turn itself.
  EXPECT_THAT(second->generation.partials[0].response_ids,
              ElementsAre('x', 'y', kEnd, '\n', 't', '7', kEnd, '\n', 'a'));
  EXPECT_THAT(second->generation.partials[0].loss_mask, ElementsAre(1, 1, 1, 0, 0, 0, 0, 0, 0));
  Answer(session, {'z', kEnd}, 4, R"({"role":"assistant","content":"z"})");
  const SessionRecord record = session.Close();
  EXPECT_EQ(record.requests, 2);
  EXPECT_EQ(record.limit, std::nullopt);
  EXPECT_THAT(record.response.response_ids,
              ElementsAre('u', 'h', 'i', kEnd, '\n', 'a', 'x', 'y', kEnd, '\n', 't', '7', kEnd,
                          '\n', 'a', 'z', kEnd));
  EXPECT_THAT(record.response.loss_mask,
              ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(record.response.behavior_logprobs,
              ElementsAre(0, 0, 0, 0, 0, 0, -1, -2, -3, 0, 0, 0, 0, 0, 0, -1, -2));
  EXPECT_THAT(record.response.spans, ElementsAre(Span{{0, 3}, 0, 15}, Span{{0, 4}, 15, 17}));
}

TEST_F(SessionTest, NeverTokenizesAgainWhatWasSampled) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'q', 'q', kEnd}, 0, kAnswer);  // ids of another text than the answer's
  const absl::StatusOr<SessionTurn> second = Begin(session, kTool);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->generation.partials[0].response_ids[0], 'q');
}

TEST_F(SessionTest, AnAnswerThatWasCutOffIsEndedWithoutLoss) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y'}, 0, kAnswer, FinishReason::kLength);
  const absl::StatusOr<SessionTurn> second = Begin(session, kTool);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(second->generation.partials[0].response_ids,
              ElementsAre('x', 'y', kEnd, '\n', 't', '7', kEnd, '\n', 'a'));
  EXPECT_THAT(second->generation.partials[0].loss_mask, ElementsAre(1, 1, 0, 0, 0, 0, 0, 0, 0));
}

TEST_F(SessionTest, TheConversationMayOnlyBeAppendedTo) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y', kEnd}, 0, kAnswer);
  for (
      const std::string messages :
      {kUser,
       R"([{"role":"user","content":"HI"},{"role":"assistant","content":"xy"},{"role":"tool","content":"7"}])",
       R"([{"role":"user","content":"hi"},{"role":"assistant","content":"no"},{"role":"tool","content":"7"}])",
       R"([{"role":"user","content":"hi"},{"role":"assistant","content":"xy"}])"}) {
    const absl::Status status = Begin(session, messages).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << messages;
    EXPECT_THAT(std::string(status.message()), HasSubstr("may only be appended to"));
  }
  EXPECT_TRUE(Begin(session, kTool).ok());
}

TEST_F(SessionTest, OnlyNamesAndArgumentsOfCallsMatter) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', kEnd}, 0,
         R"({"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function",)"
         R"("function":{"name":"add","arguments":{"a":1,"b":2}}}]})");
  const std::string messages =
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[)"
      R"({"function":{"name":"add","arguments":{"b":2,"a":1}}}]},{"role":"tool","content":"3"}])";
  EXPECT_TRUE(Begin(session, messages).ok());
}

TEST_F(SessionTest, AFailedRequestIsNotRecorded) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  session.Add(latest_, GeneratedToken());
  session.End(latest_, absl::CancelledError("gone"), "");
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', kEnd}, 0, kAnswer);
  EXPECT_EQ(session.Close().response.response_ids.size(), 8U);
}

TEST_F(SessionTest, RepeatsTheLatestAnswerWithoutRecordingItAgain) {
  SessionOptions once = Options();
  once.max_requests = 1;
  Session session(once, tokenizer_);
  ASSERT_TRUE(Begin(session, kUser, "d").ok());
  EXPECT_EQ(Begin(session, kUser, "d").status().code(), absl::StatusCode::kAborted);
  Answer(session, {'x', 'y', kEnd}, 3, kAnswer);
  for (int i = 0; i < once.max_repeats; ++i) {
    const absl::StatusOr<SessionTurn> again = Begin(session, kUser, "d");
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(again->repeated.size(), 3U);
    EXPECT_EQ(again->repeated[0].token.id, 'x');
    EXPECT_EQ(again->repeated[2].finish, FinishReason::kStop);
    EXPECT_THAT(again->prompt_ids, ElementsAre('u', 'h', 'i', kEnd, '\n', 'a'));
    EXPECT_THAT(again->generation.sampling.stop_ids, ElementsAre(kEnd));
  }
  EXPECT_EQ(Begin(session, kUser, "d").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Begin(session, kUser, "other").status().code(), absl::StatusCode::kInvalidArgument);
  const SessionRecord record = session.Close();
  EXPECT_EQ(record.requests, 1);
  EXPECT_EQ(record.response.response_ids.size(), 9U);
}

TEST_F(SessionTest, HasOneRequestAtATime) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  EXPECT_EQ(Begin(session, kUser).status().code(), absl::StatusCode::kAborted);
}

TEST_F(SessionTest, BoundsTokensAndRequests) {
  Session small(Options(/*max_tokens=*/6), tokenizer_);
  EXPECT_EQ(Begin(small, kUser).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(small.Close().limit, EpisodeLimit::kTokens);

  Session cut(Options(/*max_tokens=*/8), tokenizer_);
  const absl::StatusOr<SessionTurn> turn = Begin(cut, kUser);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->generation.sampling.max_new_tokens, 2);
  Answer(cut, {'x', 'y'}, 0, kAnswer, FinishReason::kLength);
  EXPECT_EQ(cut.Close().limit, EpisodeLimit::kTokens);

  SessionOptions once = Options();
  once.max_requests = 1;
  Session session(once, tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', kEnd}, 0, kAnswer);
  EXPECT_THAT(std::string(Begin(session, kTool).status().message()), HasSubstr("1 requests"));
}

TEST_F(SessionTest, NothingFollowsTheEnd) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  session.Close();
  Answer(session, {'x', kEnd}, 0, kAnswer);
  EXPECT_EQ(session.Close().requests, 0);
  EXPECT_EQ(Begin(session, kUser).status().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(SessionTest, CompletionsContinueTheirText) {
  Session session(Options(), tokenizer_);
  ASSERT_TRUE(Complete(session, "ab").ok());
  Answer(session, {'c', 'd'}, 0, "cd");
  EXPECT_EQ(Complete(session, "abXd?").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<SessionTurn> turn = Complete(session, "abcd?");
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_THAT(turn->prompt_ids, ElementsAre('a', 'b', 'c', 'd', '?'));
  EXPECT_EQ(Begin(session, kUser).status().code(), absl::StatusCode::kAborted);
}

constexpr char kOther[] = R"([{"role":"user","content":"go"}])";

SessionOptions Several(SessionOptions options, int32_t conversations = 2) {
  options.max_conversations = conversations;
  return options;
}

TEST_F(SessionTest, ConversationsAreSegmentsInTheOrderInWhichTheyBegan) {
  Session session(Several(Options()), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y', kEnd}, 3, kAnswer);
  const absl::StatusOr<SessionTurn> other = Begin(session, kOther);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->prompt_ids, ElementsAre('u', 'g', 'o', kEnd, '\n', 'a'));
  EXPECT_TRUE(other->generation.partials.empty());
  EXPECT_NE(other->generation.seed, Options().seed) << "the same numbers would sample alike";
  Answer(session, {'z', kEnd}, 3, R"({"role":"assistant","content":"z"})");
  const absl::StatusOr<SessionTurn> first = Begin(session, kTool);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->generation.seed, Options().seed);
  Answer(session, {'w', kEnd}, 4, R"({"role":"assistant","content":"w"})");

  const Response response = session.Close().response;
  EXPECT_THAT(response.response_ids,
              ElementsAre('u', 'h', 'i', kEnd, '\n', 'a', 'x', 'y', kEnd, '\n', 't', '7', kEnd,
                          '\n', 'a', 'w', kEnd, 'u', 'g', 'o', kEnd, '\n', 'a', 'z', kEnd));
  EXPECT_THAT(response.loss_mask, ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0,
                                              0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(response.segments, ElementsAre(0, 17));
  EXPECT_THAT(response.spans,
              ElementsAre(Span{{0, 3}, 0, 15}, Span{{0, 4}, 15, 17}, Span{{0, 3}, 17, 25}));
  const ResponseBounds bounds{3, 0, {0, 4}};
  EXPECT_EQ(CheckResponse(response, bounds), absl::OkStatus());
}

TEST_F(SessionTest, EachConversationHasItsOwnTokensAndTheirNumberIsBounded) {
  Session session(Several(Options(/*max_tokens=*/8)), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y'}, 0, kAnswer, FinishReason::kLength);
  EXPECT_EQ(Begin(session, kTool).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<SessionTurn> other = Begin(session, kOther);
  ASSERT_TRUE(other.ok()) << "the first one is full: " << other.status();
  EXPECT_EQ(other->generation.sampling.max_new_tokens, 2);
  Answer(session, {'z', kEnd}, 0, R"({"role":"assistant","content":"z"})");
  const absl::Status third = Begin(session, R"([{"role":"user","content":"3"}])").status();
  EXPECT_EQ(third.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(third.message()), HasSubstr("environment.max_conversations"));
  const SessionRecord record = session.Close();
  EXPECT_EQ(record.requests, 2);
  EXPECT_EQ(record.limit, EpisodeLimit::kConversations) << "the latest request was refused";
}

TEST_F(SessionTest, AConversationThatWasCutOffIsForgivenOnceAnotherGoesOn) {
  Session session(Several(Options(/*max_tokens=*/8)), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y'}, 0, kAnswer, FinishReason::kLength);
  ASSERT_TRUE(Begin(session, kOther).ok());
  Answer(session, {kEnd}, 0, kAnswer);
  EXPECT_EQ(session.Close().limit, std::nullopt);
}

TEST_F(SessionTest, ConversationsMayBeOfDifferentKinds) {
  Session session(Several(Options()), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y', kEnd}, 0, kAnswer);
  ASSERT_TRUE(Complete(session, "ab").ok());
  Answer(session, {'c'}, 0, "c");
  const absl::StatusOr<SessionTurn> turn = Complete(session, "abc?");
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_THAT(turn->prompt_ids, ElementsAre('a', 'b', 'c', '?'));
}

constexpr char kSaidZ[] = R"({"role":"assistant","content":"z"})";
constexpr char kAfterZ[] = R"([{"role":"user","content":"go"},{"role":"assistant","content":"z"},)"
                           R"({"role":"user","content":"on"}])";

TEST_F(SessionTest, ConversationsHaveRequestsAtTheSameTime) {
  Session session(Several(Options(), 3), tokenizer_);
  const int64_t first = Begin(session, kUser, "1")->request;
  const absl::StatusOr<SessionTurn> second = Begin(session, kOther, "2");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(second->generation.seed, Options().seed);
  EXPECT_EQ(Begin(session, kOther, "2").status().code(), absl::StatusCode::kAborted);
  // The order of the answers does not matter.
  AnswerTo(second->request, session, {'z', kEnd}, 3, kSaidZ);
  const absl::StatusOr<SessionTurn> third = Begin(session, kAfterZ, "3");
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->generation.seed, second->generation.seed);
  // The same messages once more are another conversation, of which the whole prompt is its own.
  const absl::StatusOr<SessionTurn> fork = Begin(session, kAfterZ, "4");
  ASSERT_TRUE(fork.ok()) << fork.status();
  EXPECT_TRUE(fork->generation.partials.empty());
  EXPECT_THAT(std::string(Begin(session, kAfterZ, "5").status().message()),
              HasSubstr("environment.max_conversations"));
  AnswerTo(fork->request, session, {'f', kEnd}, 3, kSaidZ);
  AnswerTo(third->request, session, {'w', kEnd}, 3, kSaidZ);
  AnswerTo(first, session, {'x', 'y', kEnd}, 3, kAnswer);

  const SessionRecord record = session.Close();
  EXPECT_EQ(record.requests, 4);
  EXPECT_THAT(record.response.segments, ElementsAre(0, 9, 26));
  EXPECT_EQ(record.response.response_ids[6], 'x');
  EXPECT_EQ(record.response.response_ids[9 + 6], 'z');
  EXPECT_EQ(record.response.response_ids.rbegin()[1], 'f');
}

TEST_F(SessionTest, AFailedFirstRequestLeavesItsNumberToTheNextConversation) {
  Session session(Several(Options()), tokenizer_);
  const int64_t first = Begin(session, kUser)->request;
  const int64_t second = Begin(session, kOther)->request;
  session.End(first, absl::CancelledError("gone"), "");
  AnswerTo(second, session, {'z', kEnd}, 3, kSaidZ);
  const absl::StatusOr<SessionTurn> again = Begin(session, kUser);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->generation.seed, Options().seed);
  AnswerTo(again->request, session, {'x', 'y', kEnd}, 3, kAnswer);
  EXPECT_EQ(session.Close().response.response_ids[6], 'x');
}

TEST_F(SessionTest, RepeatsTheLatestAnswerOfEachConversation) {
  Session session(Several(Options()), tokenizer_);
  ASSERT_TRUE(Begin(session, kUser, "1").ok());
  Answer(session, {'x', 'y', kEnd}, 3, kAnswer);
  ASSERT_TRUE(Begin(session, kOther, "2").ok());
  const absl::StatusOr<SessionTurn> again = Begin(session, kUser, "1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->repeated.size(), 3U);
}

TEST_F(SessionTest, WhatFollowsAnAnswerThatIsNotYetRecordedIsAskedLater) {
  Session session(Several(Options()), tokenizer_);
  const int64_t request = Begin(session, kOther)->request;
  GeneratedToken token;
  token.token.id = 'z';
  session.Add(request, token);
  token.finish = FinishReason::kStop;  // which a client of a stream may see before End
  session.Add(request, token);
  EXPECT_EQ(Begin(session, kAfterZ).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Begin(session, kUser).ok()) << "another conversation";
  session.End(request, absl::OkStatus(), kSaidZ);
  EXPECT_EQ(Begin(session, kAfterZ)->generation.partials.size(), 1U);
}

TEST_F(SessionTest, TheLatestRequestThatBeganSaysWhetherAConversationsLimitMatters) {
  Session session(Several(Options(/*max_tokens=*/8)), tokenizer_);
  const int64_t first = Begin(session, kUser)->request;
  const int64_t second = Begin(session, kOther)->request;
  AnswerTo(second, session, {'z'}, 0, kSaidZ);
  AnswerTo(first, session, {'x', 'y'}, 0, kAnswer, FinishReason::kLength);
  EXPECT_EQ(session.Close().limit, std::nullopt);
}

TEST_F(SessionTest, AnEngineErrorStaysUntilALaterRequestIsAnswered) {
  Session session(Several(Options(), 3), tokenizer_);
  const int64_t first = Begin(session, kUser)->request;
  const int64_t second = Begin(session, kOther)->request;
  session.End(first, absl::UnavailableError("lost"), "");
  AnswerTo(second, session, {'z', kEnd}, 0, kSaidZ);
  EXPECT_EQ(session.Close().engine_error, absl::UnavailableError("lost"));

  Session retried(Options(), tokenizer_);
  retried.End(Begin(retried, kUser)->request, absl::UnavailableError("lost"), "");
  ASSERT_TRUE(Begin(retried, kUser).ok());
  Answer(retried, {'x', kEnd}, 0, kAnswer);
  EXPECT_EQ(retried.Close().engine_error, absl::OkStatus());
}

TEST_F(SessionTest, TheTokensOfAllConversationsAreBounded) {
  SessionOptions options = Several(Options(), 3);
  options.max_tokens = 4;
  Session session(options, tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y', kEnd}, 0, kAnswer);
  const absl::StatusOr<SessionTurn> second = Begin(session, kOther);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->generation.sampling.max_new_tokens, 1);
  const int64_t third = Begin(session, R"([{"role":"user","content":"3"}])")->request;
  GeneratedToken token;
  token.finish = FinishReason::kLength;
  EXPECT_TRUE(session.Add(second->request, token)) << "it ends by itself";
  token.finish = FinishReason::kNone;
  EXPECT_FALSE(session.Add(third, token)) << "it must be ended";
  session.End(second->request, absl::OkStatus(), kSaidZ);
  session.End(third, absl::OkStatus(), kSaidZ);
  const absl::Status refused = Begin(session, kTool).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("environment.max_episode_tokens"));
  const SessionRecord record = session.Close();
  EXPECT_EQ(record.limit, EpisodeLimit::kEpisodeTokens);
  EXPECT_EQ(record.requests, 3);
}

TEST_F(SessionTest, AnEpisodeThatStopsWithItsLastTokenIsNotTruncated) {
  SessionOptions options = Options();
  options.max_tokens = 3;
  Session session(options, tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  Answer(session, {'x', 'y', kEnd}, 0, kAnswer);
  EXPECT_EQ(session.Close().limit, std::nullopt);
}

TEST_F(SessionTest, TokensOfFailedRequestsCount) {
  SessionOptions options = Options();
  options.max_tokens = 2;
  Session session(options, tokenizer_);
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<SessionTurn> turn = Begin(session, kUser);
    ASSERT_TRUE(turn.ok()) << turn.status();
    EXPECT_EQ(turn->generation.sampling.max_new_tokens, 2 - i);
    session.Add(latest_, GeneratedToken());
    session.End(latest_, absl::CancelledError("gone"), "");
  }
  EXPECT_THAT(std::string(Begin(session, kUser).status().message()),
              HasSubstr("environment.max_episode_tokens"));
  EXPECT_EQ(session.Close().limit, EpisodeLimit::kEpisodeTokens);
}

TEST_F(SessionTest, TokensOfRequestsThatTheEngineFailedDoNotCount) {
  SessionOptions options = Options();
  options.max_tokens = 2;
  Session session(options, tokenizer_);
  for (const absl::Status& fault :
       {absl::UnavailableError("lost"), absl::InternalError("broken")}) {
    ASSERT_TRUE(Begin(session, kUser).ok());
    session.Add(latest_, GeneratedToken());
    session.End(latest_, fault, "");
  }
  const absl::StatusOr<SessionTurn> again = Begin(session, kUser);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->generation.sampling.max_new_tokens, 2);
  Answer(session, {'x', kEnd}, 0, kAnswer);
  EXPECT_EQ(session.Close().limit, std::nullopt);
}

TEST_F(SessionTest, FailedRequestsCountOnceTheyHaveATokenButAreNotAnswered) {
  SessionOptions once = Options();
  once.max_requests = 1;
  Session session(once, tokenizer_);
  ASSERT_TRUE(Begin(session, kUser).ok());
  session.End(latest_, absl::UnavailableError("full"), "");
  ASSERT_TRUE(Begin(session, kUser).ok());
  session.Add(latest_, GeneratedToken());
  session.End(latest_, absl::CancelledError("gone"), "");
  EXPECT_THAT(std::string(Begin(session, kUser).status().message()), HasSubstr("1 requests"));
  EXPECT_EQ(session.Close().requests, 0);
}

}  // namespace
}  // namespace freshet
