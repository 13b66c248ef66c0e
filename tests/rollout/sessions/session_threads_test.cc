#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/str_cat.h"
#include "datastore/response_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/sessions/session.h"
#include "tests/rollout/sessions/toy_chat_tokenizer.h"

namespace freshet {
namespace {

constexpr int kAgents = 8;
constexpr int kTurns = 6;

// The messages of an agent before its turn number `turn`.
std::string Messages(int agent, int turn) {
  std::string messages = StrCat(R"([{"role":"user","content":"agent )", agent, "\"}");
  for (int i = 0; i < turn; ++i) {
    messages += StrCat(R"(,{"role":"assistant","content":"said )", i,
                       R"("},{"role":"user","content":"more"})");
  }
  return messages + "]";
}

SessionRequest Request(int agent, int turn) {
  SessionRequest request;
  request.chat = true;
  request.conversation.messages = Messages(agent, turn);
  request.conversation.add_generation_prompt = true;
  return request;
}

// Plays the turns of one agent until a request is refused.
absl::Status Play(Session& session, const Tokenizer& tokenizer, int agent) {
  for (int turn = 0; turn < kTurns; ++turn) {
    SessionRequest request = Request(agent, turn);
    const ChatRequest chat = request.conversation;
    const absl::StatusOr<SessionTurn> begun =
        session.Begin(std::move(request), [&] { return tokenizer.EncodeChat(chat); });
    if (!begun.ok()) return begun.status();
    session.OnClosed(begun->request, [] {});
    GeneratedToken token;
    token.token.id = 'a' + agent;
    bool more = true;
    for (int i = 0; i < 4 && more; ++i) {
      if (i == 3) token.finish = FinishReason::kStop;
      more = session.Add(begun->request, token);
    }
    session.End(begun->request, absl::OkStatus(),
                StrCat(R"({"role":"assistant","content":"said )", turn, "\"}"));
  }
  return absl::OkStatus();
}

// All agents at the same time; the statuses with which they ended.
std::vector<absl::Status> PlayAll(Session& session, const Tokenizer& tokenizer) {
  std::vector<absl::Status> ended(kAgents);
  std::vector<std::jthread> threads;
  threads.reserve(kAgents);
  for (int agent = 0; agent < kAgents; ++agent) {
    threads.emplace_back([&session, &tokenizer, &ended, agent] {
      ended[static_cast<size_t>(agent)] = Play(session, tokenizer, agent);
    });
  }
  threads.clear();
  return ended;
}

SessionOptions Options() {
  SessionOptions options;
  options.sampling.max_new_tokens = 1000;
  options.max_conversations = kAgents;
  return options;
}

TEST(SessionThreads, EveryAgentsConversationIsASegmentOfItsOwn) {
  const ToyChatTokenizer tokenizer;
  Session session(Options(), tokenizer);
  for (const absl::Status& status : PlayAll(session, tokenizer)) EXPECT_TRUE(status.ok()) << status;
  const SessionRecord record = session.Close();
  EXPECT_EQ(record.requests, kAgents * kTurns);
  const Response& response = record.response;
  ASSERT_EQ(response.segments.size(), size_t{kAgents});
  std::set<int32_t> speakers;
  for (size_t i = 0; i < response.segments.size(); ++i) {
    const auto begin = static_cast<size_t>(response.segments[i]);
    const size_t end = i + 1 < response.segments.size()
                           ? static_cast<size_t>(response.segments[i + 1])
                           : response.response_ids.size();
    std::set<int32_t> sampled;
    int count = 0;
    for (size_t at = begin; at < end; ++at) {
      if (response.loss_mask[at] == 0) continue;
      sampled.insert(response.response_ids[at]);
      ++count;
    }
    EXPECT_EQ(sampled.size(), 1U) << "segment " << i;
    EXPECT_EQ(count, kTurns * 4);
    speakers.merge(sampled);
  }
  EXPECT_EQ(speakers.size(), size_t{kAgents});
}

TEST(SessionThreads, TheirTokensTogetherAreBounded) {
  const ToyChatTokenizer tokenizer;
  SessionOptions options = Options();
  options.max_tokens = 50;
  Session session(options, tokenizer);
  for (const absl::Status& status : PlayAll(session, tokenizer)) {
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  }
  const SessionRecord record = session.Close();
  EXPECT_EQ(record.limit, EpisodeLimit::kEpisodeTokens);
  int64_t sampled = 0;
  for (const uint8_t bears_loss : record.response.loss_mask) sampled += bears_loss;
  EXPECT_GE(sampled, options.max_tokens);
  EXPECT_LT(sampled, options.max_tokens + kAgents);  // one of each other open request
}

TEST(SessionThreads, TheEndOfTheEpisodeEndsTheirRequests) {
  const ToyChatTokenizer tokenizer;
  Session session(Options(), tokenizer);
  SessionRecord record;
  std::jthread closer([&] { record = session.Close(); });
  for (const absl::Status& status : PlayAll(session, tokenizer)) {
    EXPECT_TRUE(status.ok() || absl::IsUnauthenticated(status)) << status;
  }
  closer.join();
  const auto prompt = [&] { return tokenizer.EncodeChat(ChatRequest()); };
  EXPECT_TRUE(absl::IsUnauthenticated(session.Begin(SessionRequest(), prompt).status()));
  // What was recorded is whole.
  const SessionRecord again = session.Close();
  EXPECT_EQ(again.requests, record.requests);
  EXPECT_EQ(again.response.response_ids, record.response.response_ids);
  if (record.requests > 0) {
    const ResponseBounds bounds{0, 0, {0, 0}};
    EXPECT_EQ(CheckResponse(record.response, bounds), absl::OkStatus());
  }
}

}  // namespace
}  // namespace freshet
