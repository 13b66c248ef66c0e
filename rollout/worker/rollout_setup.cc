#include "rollout/worker/rollout_setup.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/tasks.h"
#include "text/row_tokens.h"

namespace freshet {
namespace {

constexpr uint64_t kEvalStream = 0x6576616cULL;

// Jobs accepted by an older version do not have it.
int32_t MaxConversations(const job::v1::Environment& environment) {
  return static_cast<int32_t>(std::max<int64_t>(environment.max_conversations(), 1));
}

}  // namespace

SamplingParams MakeSampling(const job::v1::JobSpec& spec, const ModelConfig& model,
                            const Tokenizer& tokenizer) {
  const job::v1::Rollout& rollout = spec.rollout();
  SamplingParams sampling;
  sampling.temperature = rollout.temperature();
  sampling.top_p = rollout.top_p();
  sampling.top_k = static_cast<int32_t>(rollout.top_k());
  sampling.min_p = rollout.min_p();
  // Jobs accepted by an older version do not have it.
  if (rollout.has_repetition_penalty()) sampling.repetition_penalty = rollout.repetition_penalty();
  sampling.presence_penalty = rollout.presence_penalty();
  sampling.frequency_penalty = rollout.frequency_penalty();
  sampling.min_new_tokens = static_cast<int32_t>(rollout.min_new_tokens());
  sampling.max_new_tokens = static_cast<int32_t>(rollout.max_new_tokens());
  if (rollout.stop_size() > 0) {
    sampling.stop_strings = std::make_shared<const StopStrings>(
        std::vector<std::string>(rollout.stop().begin(), rollout.stop().end()), tokenizer);
  }
  sampling.stop_ids = model.eos_token_ids;
  if (tokenizer.eos_id().has_value()) sampling.stop_ids.push_back(*tokenizer.eos_id());
  for (const int64_t id : rollout.stop_token_ids()) {
    sampling.stop_ids.push_back(static_cast<int32_t>(id));
  }
  return sampling;
}

SamplingParams MakeEvalSampling(const job::v1::JobSpec& spec, const job::v1::EvalSet& set,
                                const ModelConfig& model, const Tokenizer& tokenizer) {
  SamplingParams sampling = MakeSampling(spec, model, tokenizer);
  sampling.temperature = set.temperature();
  sampling.top_p = set.top_p();
  sampling.top_k = static_cast<int32_t>(set.top_k());
  sampling.min_p = set.min_p();
  sampling.max_new_tokens = static_cast<int32_t>(set.max_new_tokens());
  // The set may generate less than a training sample has at least.
  sampling.min_new_tokens = std::min(sampling.min_new_tokens, sampling.max_new_tokens);
  return sampling;
}

absl::StatusOr<std::shared_ptr<const Prompt>> MakeHeldOutPrompt(
    const job::v1::JobSpec& spec, const Tokenizer& tokenizer, int64_t row, const std::string& text,
    std::map<std::string, std::string> attributes) {
  Prompt prompt;
  prompt.ordinal = row;
  FRESHET_ASSIGN_OR_RETURN(prompt.prompt_ids,
                           EncodePrompt(tokenizer, DatasetOfRow(spec, attributes), text));
  prompt.attributes = std::move(attributes);
  prompt.attributes["prompt"] = text;
  return std::make_shared<const Prompt>(std::move(prompt));
}

uint64_t EvalSeed(const job::v1::JobSpec& spec) {
  return static_cast<uint64_t>(spec.seed()) ^ kEvalStream;
}

NativeEngineOptions MakeEngineOptions(const job::v1::JobSpec& spec, const ContainerLimits& limits) {
  constexpr int64_t kMostThreads = 256;
  NativeEngineOptions options;
  options.max_sequences = std::max(spec.rollout().max_sequences(), spec.group_size());
  options.max_batch_tokens = spec.rollout().max_batch_tokens();
  // Jobs accepted by an older version name no device.
  if (spec.rollout().has_device()) options.device = spec.rollout().device();
  options.bf16 = spec.model().dtype() == "bf16";
  options.int8_weights = spec.rollout().quantization() == "int8";
  if (options.int8_weights && options.device == "auto") options.device = "cpu";
  options.speculative_tokens = spec.rollout().speculative_tokens();
  const int64_t cpus =
      std::min<int64_t>(kMostThreads, static_cast<int64_t>(limits.cpus.value_or(1)));
  options.threads = static_cast<int>(spec.rollout().has_threads() ? spec.rollout().threads()
                                                                  : std::max<int64_t>(1, cpus));
  options.cache_bytes = std::min(options.cache_bytes, limits.memory_bytes.value_or(INT64_MAX) / 4);
  if (spec.rollout().has_kv_cache_bytes()) options.cache_bytes = spec.rollout().kv_cache_bytes();
  options.deterministic = spec.staleness().max() == 0;
  options.kv = spec.weight_sync().kv() == "recompute" ? KvPolicy::kRecompute : KvPolicy::kKeep;
  return options;
}

EpisodeOptions MakeEpisodeOptions(const job::v1::JobSpec& spec) {
  const job::v1::Environment& environment = spec.environment();
  EpisodeOptions options;
  if (environment.type() == "grpc") {
    options.environment = environment.name();
    options.label = StrCat("grpc ", environment.address(), options.environment.empty() ? "" : " ",
                           options.environment);
  } else {
    options.environment = environment.type();
  }
  for (const auto& [name, task] : spec.tasks()) {
    if (task.has_environment()) options.environment_by_task[name] = task.environment();
  }
  options.options.insert(environment.options().begin(), environment.options().end());
  options.max_turns = static_cast<int32_t>(environment.max_turns());
  options.max_turn_tokens = static_cast<int32_t>(environment.max_turn_tokens());
  if (environment.has_max_time_ms()) {
    options.max_time = absl::Milliseconds(environment.max_time_ms());
  }
  if (environment.has_max_episode_tokens()) {
    options.max_episode_tokens = environment.max_episode_tokens();
  }
  if (environment.has_max_cost()) options.max_cost = environment.max_cost();
  options.mask_invalid_turns = environment.mask_invalid_turns();
  options.max_conversations = MaxConversations(environment);
  options.trace_ratio = spec.output().trace_ratio();
  return options;
}

bool HasAgent(const job::v1::JobSpec& spec) { return spec.environment().type() == "openai_agent"; }

AgentOptions MakeAgentOptions(const job::v1::JobSpec& spec, const std::string& base_url) {
  const job::v1::Environment& environment = spec.environment();
  AgentOptions options;
  options.label = environment.address();
  options.base_url = base_url;
  options.model = spec.name();
  options.options.insert(environment.options().begin(), environment.options().end());
  options.chat = AnyDataset(spec).has_chat();
  options.timeout = absl::Milliseconds(environment.timeout_ms());
  options.max_concurrent = environment.max_concurrent();
  options.max_conversations = MaxConversations(environment);
  if (environment.has_max_episode_tokens()) {
    options.max_episode_tokens = environment.max_episode_tokens();
  }
  return options;
}

EpisodeText MakeEpisodeText(const job::v1::JobSpec& spec, const Tokenizer& tokenizer) {
  EpisodeText text;
  text.decode = [&tokenizer](const std::vector<int32_t>& ids) {
    return tokenizer.Decode(ids, /*skip_special=*/true);
  };
  text.encode = [&tokenizer](const std::string& observation) {
    return tokenizer.Encode(observation, SpecialTokens::kPlain);
  };
  if (spec.environment().observations() == "messages") {
    text.converse = [&tokenizer, chat = AnyDataset(spec).chat()](
                        const std::string& prompt) -> absl::StatusOr<EpisodeConversation> {
      FRESHET_ASSIGN_OR_RETURN(ChatRequest row, MakeConversation(chat, prompt));
      return EpisodeConversation::Create(tokenizer, std::move(row));
    };
  }
  return text;
}

RolloutOptions MakeRolloutOptions(const job::v1::JobSpec& spec, const SamplingParams& sampling,
                                  int64_t longest_prompt_tokens) {
  RolloutOptions options;
  options.sampling = sampling;
  options.seed = static_cast<uint64_t>(spec.seed());
  options.group_size = spec.group_size();
  options.max_prompt_tokens = longest_prompt_tokens;
  // The limit of a conversation includes its prompt.
  const bool conversation = HasAgent(spec) || spec.environment().observations() == "messages";
  options.max_sample_tokens = sampling.max_new_tokens + (conversation ? 0 : longest_prompt_tokens);
  options.lease_ttl = absl::Milliseconds(spec.rollout().lease_ttl_ms());
  options.trace_ratio = spec.output().trace_ratio();
  return options;
}

int MostEngineFailures(const job::v1::JobSpec& spec) {
  constexpr int kMoreThanOnePrompt = 3;
  // Jobs accepted by an older version have no max_attempts; use the store's default.
  const int64_t attempts = spec.rollout().has_max_attempts() ? spec.rollout().max_attempts()
                                                             : StoreOptions().max_lease_failures;
  return static_cast<int>(attempts) + kMoreThanOnePrompt;
}

}  // namespace freshet
