#include "dataset/prompt_feeder.h"

#include <set>
#include <thread>

#include "base/mutex.h"
#include "base/row_order.h"
#include "dataset/template_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_trajectory_store.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kGuard = absl::Seconds(10);

StoreOptions QueueOf(int64_t max_queued_prompts) {
  StoreOptions options;
  options.job = "j";
  options.max_queued_prompts = max_queued_prompts;
  return options;
}

// Rows with these prompts, each with answer "A" and its text.
std::unique_ptr<Dataset> DatasetOf(const std::vector<std::string>& prompts) {
  job::v1::Dataset dataset;
  dataset.set_prompt("{text}");
  dataset.set_answer("answer");
  for (const std::string& prompt : prompts) {
    auto& values = *dataset.add_rows()->mutable_values();
    values["text"] = prompt;
    values["answer"] = "A" + prompt;
  }
  return *MakeTemplateDataset(dataset);
}

// Token ids are bytes; '!' cannot be encoded.
absl::StatusOr<std::vector<int32_t>> Encode(const DatasetRow& row) {
  const std::string& text = row.prompt;
  if (text == "!") return absl::InvalidArgumentError("no token for '!'");
  if (text == "empty") return std::vector<int32_t>();
  return std::vector<int32_t>(text.begin(), text.end());
}

PromptFeederOptions InOrder() {
  PromptFeederOptions options;
  options.shuffle = false;
  options.max_prompt_tokens = 100;
  options.max_wait = absl::Milliseconds(20);
  return options;
}

std::vector<int64_t> Ordinals(const std::vector<Prompt>& prompts) {
  std::vector<int64_t> ordinals;
  for (const Prompt& prompt : prompts) ordinals.push_back(prompt.ordinal);
  return ordinals;
}

TEST(PromptFeeder, FeedsEncodedPromptsWithTheirAttributes) {
  FakeTrajectoryStore store(QueueOf(10));
  const auto dataset = DatasetOf({"x", "yz"});
  PromptFeederOptions options = InOrder();
  options.first_attempt = 5;
  options.total_prompts = 3;
  PromptFeeder feeder(store, *dataset, Encode, options);
  ASSERT_TRUE(*feeder.FeedOnce());
  EXPECT_TRUE(feeder.done());
  const std::vector<Prompt> prompts = store.TakePrompts(10);
  EXPECT_THAT(Ordinals(prompts), ElementsAre(0, 1, 2));
  EXPECT_THAT(prompts[1].prompt_ids, ElementsAre('y', 'z'));
  EXPECT_EQ(prompts[1].attributes.at("prompt"), "yz");
  EXPECT_EQ(prompts[1].attributes.at("answer"), "Ayz");
  EXPECT_EQ(prompts[2].attributes.at("prompt"), "x");  // the second pass
  EXPECT_EQ(prompts[2].first_attempt, 5);
}

TEST(PromptFeeder, AttributePromptIsTheTextGivenToTheModel) {
  FakeTrajectoryStore store(QueueOf(10));
  job::v1::Dataset rows;
  rows.set_prompt("Q: {prompt}");
  (*rows.add_rows()->mutable_values())["prompt"] = "x";
  const auto dataset = MakeTemplateDataset(rows);
  PromptFeederOptions options = InOrder();
  options.total_prompts = 1;
  PromptFeeder feeder(store, **dataset, Encode, options);
  ASSERT_TRUE(feeder.FeedOnce().ok());
  EXPECT_EQ(store.TakePrompts(1)[0].attributes.at("prompt"), "Q: x");
}

TEST(PromptFeeder, StopsAtAFullQueueAndGoesOnWhenThereIsRoom) {
  FakeTrajectoryStore store(QueueOf(3));
  const auto dataset = DatasetOf({"a", "b", "c", "d", "e"});
  PromptFeederOptions options = InOrder();
  options.batch_prompts = 2;
  PromptFeeder feeder(store, *dataset, Encode, options);
  EXPECT_TRUE(*feeder.FeedOnce());  // 0, 1
  EXPECT_TRUE(*feeder.FeedOnce());  // 2; 3 did not fit
  EXPECT_FALSE(*feeder.FeedOnce());
  EXPECT_THAT(Ordinals(store.TakePrompts(2)), ElementsAre(0, 1));
  EXPECT_TRUE(*feeder.FeedOnce());  // 3, 4
  EXPECT_FALSE(*feeder.FeedOnce());
  EXPECT_THAT(Ordinals(store.TakePrompts(9)), ElementsAre(2, 3, 4));
  EXPECT_FALSE(feeder.done());
}

TEST(PromptFeeder, ResumesAfterTheCursor) {
  FakeTrajectoryStore store(QueueOf(100));
  const auto dataset = DatasetOf({"a", "b", "c"});
  PromptFeederOptions options = InOrder();
  options.shuffle = true;
  options.seed = 9;
  options.total_prompts = 10;
  options.start = PromptCursor{3, {4, 5, 9}};
  PromptFeeder feeder(store, *dataset, Encode, options);
  EXPECT_TRUE(*feeder.FeedOnce());
  EXPECT_TRUE(feeder.done());
  EXPECT_FALSE(*feeder.FeedOnce());
  const std::vector<Prompt> prompts = store.TakePrompts(100);
  EXPECT_THAT(Ordinals(prompts), ElementsAre(3, 6, 7, 8));
  for (const Prompt& prompt : prompts) {
    EXPECT_EQ(prompt.attributes.at("prompt"),
              dataset->Get(RowOfOrdinal(9, 3, prompt.ordinal, true))->prompt);
  }
}

TEST(PromptFeeder, IsDoneWhenOnlyEndedOrdinalsAreLeft) {
  FakeTrajectoryStore store(QueueOf(100));
  const auto dataset = DatasetOf({"a"});
  PromptFeederOptions options = InOrder();
  options.total_prompts = 4;
  options.start = PromptCursor{2, {2, 3}};
  PromptFeeder feeder(store, *dataset, Encode, options);
  EXPECT_TRUE(feeder.done());
  EXPECT_FALSE(*feeder.FeedOnce());
  EXPECT_EQ(store.queued(), 0u);
}

TEST(PromptFeeder, NamesTheRowOfABadPrompt) {
  const struct {
    const char* prompt;
    const char* error;
  } cases[] = {
      {"12345", "dataset.rows[1]: the prompt has 5 tokens, more than 4 that fit"},
      {"!", "dataset.rows[1]: no token for '!'"},
      {"empty", "dataset.rows[1]: the prompt has no tokens"},
  };
  for (const auto& c : cases) {
    FakeTrajectoryStore store(QueueOf(100));
    const auto dataset = DatasetOf({"1234", c.prompt});
    PromptFeederOptions options = InOrder();
    options.max_prompt_tokens = 4;
    PromptFeeder feeder(store, *dataset, Encode, options);
    EXPECT_TRUE(*feeder.FeedOnce());  // the valid row before it
    EXPECT_EQ(store.queued(), 1u);
    const auto fed = feeder.FeedOnce();
    EXPECT_EQ(fed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(fed.status().message()), HasSubstr(c.error));
    EXPECT_THAT(std::string(feeder.Run(std::stop_token()).message()), HasSubstr(c.error));
  }
}

TEST(PromptFeeder, LosesNothingByAStoreError) {
  FakeTrajectoryStore store(QueueOf(100));
  const auto dataset = DatasetOf({"a", "b"});
  PromptFeederOptions options = InOrder();
  options.total_prompts = 4;
  PromptFeeder feeder(store, *dataset, Encode, options);
  store.FailCalls(1, absl::UnavailableError("down"));
  EXPECT_EQ(feeder.FeedOnce().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(feeder.done());
  EXPECT_TRUE(*feeder.FeedOnce());
  EXPECT_THAT(Ordinals(store.TakePrompts(9)), ElementsAre(0, 1, 2, 3));
}

TEST(PromptFeeder, RunFeedsAllThroughASmallQueueDespiteStoreErrors) {
  FakeTrajectoryStore store(QueueOf(3));
  const auto dataset = DatasetOf({"a", "b", "c", "d"});
  PromptFeederOptions options = InOrder();
  options.total_prompts = 50;
  options.batch_prompts = 5;
  PromptFeeder feeder(store, *dataset, Encode, options);
  store.FailCalls(2, absl::UnavailableError("down"));
  absl::Status result = absl::UnknownError("still running");
  Notification done;
  std::jthread thread([&](std::stop_token stop) {
    result = feeder.Run(stop);
    done.Notify();
  });
  std::vector<int64_t> got;
  const absl::Time guard = absl::Now() + kGuard;
  while (got.size() < 50 && absl::Now() < guard) {
    const uint64_t seen = store.ChangeCount(Topic::kPrompts);
    for (const Prompt& prompt : store.TakePrompts(2)) got.push_back(prompt.ordinal);
    store.AwaitChange(Topic::kPrompts, seen, absl::Milliseconds(1));
  }
  ASSERT_TRUE(done.WaitFor(kGuard));
  EXPECT_TRUE(result.ok()) << result;
  ASSERT_EQ(got.size(), 50u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], static_cast<int64_t>(i));
}

TEST(PromptFeeder, RunReturnsWhenStoppedBeforeAFullQueue) {
  FakeTrajectoryStore store(QueueOf(1));
  const auto dataset = DatasetOf({"a"});
  PromptFeeder feeder(store, *dataset, Encode, InOrder());
  Notification done;
  absl::Status result;
  std::jthread thread([&](std::stop_token stop) {
    result = feeder.Run(stop);
    done.Notify();
  });
  thread.request_stop();
  EXPECT_TRUE(done.WaitFor(kGuard));
  EXPECT_TRUE(result.ok()) << result;
}

TEST(ValidatePrompts, ListsTheRowsThatDoNotFit) {
  const auto dataset =
      DatasetOf({"1234", "12345", "!", "ok", "empty", "66666", "77777", "88888", "99999"});
  const absl::Status status = ValidatePrompts(*dataset, Encode, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, testing::StartsWith("dataset.rows[1]: the prompt has 5 tokens"));
  EXPECT_THAT(message, HasSubstr("\ndataset.rows[2]: no token for '!'"));
  EXPECT_THAT(message, HasSubstr("\ndataset.rows[6]: "));
  EXPECT_THAT(message, testing::EndsWith("\nand 2 more"));
  EXPECT_TRUE(ValidatePrompts(*DatasetOf({"1234"}), Encode, 4).ok());
}

}  // namespace
}  // namespace freshet
