#include "rollout/worker/rollout_setup.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using testing::ElementsAre;

class RolloutSetup : public testing::Test {
 protected:
  RolloutSetup() {
    spec_.set_seed(7);
    spec_.set_group_size(4);
    job::v1::Rollout& rollout = *spec_.mutable_rollout();
    rollout.set_max_new_tokens(3);
    rollout.set_temperature(0.8);
    rollout.set_top_p(0.9);
    rollout.set_top_k(5);
    rollout.add_stop_token_ids(2);
    rollout.set_max_sequences(64);
    rollout.set_max_batch_tokens(128);
    rollout.set_lease_ttl_ms(2500);
    model_.eos_token_ids = {9};
  }
  SamplingParams Sampling() const { return MakeSampling(spec_, model_, *tokenizer_); }

  job::v1::JobSpec spec_;
  ModelConfig model_;
  std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer("0123456789=");
};

TEST_F(RolloutSetup, SamplesAreDrawnAsTheJobSays) {
  const SamplingParams sampling = Sampling();
  EXPECT_DOUBLE_EQ(sampling.temperature, 0.8);
  EXPECT_DOUBLE_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 5);
  EXPECT_EQ(sampling.max_new_tokens, 3);
  EXPECT_THAT(sampling.stop_ids, ElementsAre(9, 11, 2)) << "of model, tokenizer and job";
}

TEST_F(RolloutSetup, AnEvaluationSetHasItsOwnSamplingButTheSameStopTokens) {
  spec_.mutable_rollout()->set_min_new_tokens(2);
  spec_.mutable_rollout()->set_repetition_penalty(1.5);
  job::v1::EvalSet set;
  set.set_temperature(0.5);
  set.set_top_p(0.75);
  set.set_top_k(3);
  set.set_min_p(0.25);
  set.set_max_new_tokens(1);
  const SamplingParams sampling = MakeEvalSampling(spec_, set, model_, *tokenizer_);
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.75);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.min_p, 0.25);
  EXPECT_EQ(sampling.max_new_tokens, 1);
  EXPECT_EQ(sampling.min_new_tokens, 1) << "no more than it may generate";
  EXPECT_EQ(sampling.repetition_penalty, 1.5);
  EXPECT_EQ(sampling.stop_ids, Sampling().stop_ids);
  EXPECT_NE(EvalSeed(spec_), 7U) << "else evaluations would repeat the samples of training";
}

TEST_F(RolloutSetup, AnEngineHasRoomForAGroup) {
  EXPECT_EQ(MakeEngineOptions(spec_).max_sequences, 64);
  spec_.mutable_rollout()->set_max_sequences(2);
  EXPECT_EQ(MakeEngineOptions(spec_).max_sequences, 4);
}

TEST_F(RolloutSetup, AnEngineMayFailMoreOftenThanItTakesToGiveAPromptUp) {
  EXPECT_EQ(MostEngineFailures(spec_), 5 + 3) << "as an older program took the job";
  spec_.mutable_rollout()->set_max_attempts(2);
  EXPECT_EQ(MostEngineFailures(spec_), 2 + 3);
}

TEST_F(RolloutSetup, WhatTheJobLeavesOpenFollowsTheContainer) {
  EXPECT_EQ(MakeEngineOptions(spec_).threads, 1);
  EXPECT_EQ(MakeEngineOptions(spec_).cache_bytes, kDefaultKvCacheBytes);
  const ContainerLimits limits = {.cpus = 3.5, .memory_bytes = 4000};
  EXPECT_EQ(MakeEngineOptions(spec_, limits).threads, 3);
  EXPECT_EQ(MakeEngineOptions(spec_, limits).cache_bytes, 1000);
  EXPECT_EQ(MakeEngineOptions(spec_, {.cpus = 0.5, .memory_bytes = {}}).threads, 1);
  spec_.mutable_rollout()->set_threads(7);
  spec_.mutable_rollout()->set_kv_cache_bytes(5000);
  EXPECT_EQ(MakeEngineOptions(spec_, limits).threads, 7);
  EXPECT_EQ(MakeEngineOptions(spec_, limits).cache_bytes, 5000);
}

TEST_F(RolloutSetup, OnlyAnEngineWithoutStalenessIsDeterministic) {
  spec_.mutable_staleness()->set_max(0);
  EXPECT_TRUE(MakeEngineOptions(spec_).deterministic);
  spec_.mutable_staleness()->set_max(1);
  EXPECT_FALSE(MakeEngineOptions(spec_).deterministic);
}

TEST_F(RolloutSetup, TheEngineFollowsDtypeAndKv) {
  EXPECT_FALSE(MakeEngineOptions(spec_).bf16);
  EXPECT_EQ(MakeEngineOptions(spec_).kv, KvPolicy::kKeep);
  spec_.mutable_model()->set_dtype("bf16");
  spec_.mutable_weight_sync()->set_kv("recompute");
  EXPECT_TRUE(MakeEngineOptions(spec_).bf16);
  EXPECT_EQ(MakeEngineOptions(spec_).kv, KvPolicy::kRecompute);
}

TEST_F(RolloutSetup, TheEngineDraftsAsTheJobSays) {
  EXPECT_EQ(MakeEngineOptions(spec_).speculative_tokens, 0) << "as an older program took the job";
  spec_.mutable_rollout()->set_speculative_tokens(5);
  EXPECT_EQ(MakeEngineOptions(spec_).speculative_tokens, 5);
}

TEST_F(RolloutSetup, EpisodesArePlayedAsTheJobSays) {
  job::v1::Environment& environment = *spec_.mutable_environment();
  environment.set_type("guess_number");
  environment.set_max_turns(5);
  environment.set_max_turn_tokens(2);
  EXPECT_EQ(MakeEpisodeOptions(spec_).max_time, absl::InfiniteDuration());
  environment.set_max_time_ms(2500);
  environment.set_mask_invalid_turns(true);
  (*environment.mutable_options())["max"] = "100";
  spec_.mutable_output()->set_trace_ratio(0.25);
  EpisodeOptions options = MakeEpisodeOptions(spec_);
  EXPECT_EQ(options.trace_ratio, 0.25);
  EXPECT_EQ(options.environment, "guess_number");
  EXPECT_EQ(options.max_turns, 5);
  EXPECT_EQ(options.max_time, absl::Milliseconds(2500));
  EXPECT_TRUE(options.mask_invalid_turns);
  EXPECT_EQ(options.max_turn_tokens, 2);
  EXPECT_EQ(options.options.at("max"), "100");
  environment.set_type("grpc");
  environment.set_address("127.0.0.1:7081");
  options = MakeEpisodeOptions(spec_);
  EXPECT_EQ(options.environment, "") << "the only one of the user's worker";
  EXPECT_EQ(options.label, "grpc 127.0.0.1:7081");
  environment.set_name("lake");
  options = MakeEpisodeOptions(spec_);
  EXPECT_EQ(options.environment, "lake");
  EXPECT_EQ(options.label, "grpc 127.0.0.1:7081 lake");
  EXPECT_EQ(options.max_conversations, 1) << "as an older program took the job";
  environment.set_max_conversations(7);
  EXPECT_EQ(MakeEpisodeOptions(spec_).max_conversations, 7);
  EXPECT_EQ(MakeAgentOptions(spec_, "http://127.0.0.1:1/v1").max_conversations, 7);
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(MakeEpisodeOptions(spec_).max_episode_tokens, kNoLimit);
  EXPECT_EQ(MakeAgentOptions(spec_, "http://127.0.0.1:1/v1").max_episode_tokens, kNoLimit);
  environment.set_max_episode_tokens(100);
  environment.set_max_cost(0.5);
  EXPECT_EQ(MakeEpisodeOptions(spec_).max_episode_tokens, 100);
  EXPECT_EQ(MakeAgentOptions(spec_, "http://127.0.0.1:1/v1").max_episode_tokens, 100);
  EXPECT_EQ(MakeEpisodeOptions(spec_).max_cost, 0.5);
}

TEST_F(RolloutSetup, ThePolicysTextHasNoEndToken) {
  const EpisodeText text = MakeEpisodeText(spec_, *tokenizer_);
  EXPECT_EQ(text.decode({4, 2, 11}), "42");
  EXPECT_THAT(*text.encode("7="), ElementsAre(7, 10));
}

TEST_F(RolloutSetup, TheWorkerKnowsTheSizeOfALease) {
  spec_.mutable_output()->set_trace_ratio(0.25);
  const RolloutOptions options = MakeRolloutOptions(spec_, Sampling(), 12);
  EXPECT_EQ(options.trace_ratio, 0.25);
  EXPECT_EQ(options.seed, 7U);
  EXPECT_EQ(options.group_size, 4);
  EXPECT_EQ(options.max_prompt_tokens, 12);
  EXPECT_EQ(options.lease_ttl, absl::Milliseconds(2500));
  EXPECT_EQ(options.sampling.max_new_tokens, 3);
  EXPECT_EQ(options.max_sample_tokens, 15);
  spec_.mutable_environment()->set_observations("messages");
  EXPECT_EQ(MakeRolloutOptions(spec_, Sampling(), 12).max_sample_tokens, 3);
  spec_.mutable_environment()->clear_observations();
  spec_.mutable_environment()->set_type("openai_agent");
  EXPECT_EQ(MakeRolloutOptions(spec_, Sampling(), 12).max_sample_tokens, 3);
}

}  // namespace
}  // namespace freshet
