#include "local/prompt_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "local/loaded_model.h"
#include "rollout/openai/api_request.h"
#include "rollout/openai/body_members.h"
#include "rollout/openai/choice_text.h"
#include "rollout/openai/request_plan.h"
#include "text/tokenizer.h"

namespace freshet {
namespace {

using openai::ApiRequest;

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// A model that answers one request at a time.
struct TextGenerator {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<NativeEngine> engine;
  openai::ServedModel model;
  SamplingParams defaults;
};

absl::StatusOr<TextGenerator> MakeGenerator(const std::string& directory,
                                            const ComputeOptions& compute) {
  FRESHET_ASSIGN_OR_RETURN(const auto files, OpenModelDirectory(directory));
  TextGenerator generator;
  FRESHET_ASSIGN_OR_RETURN(generator.tokenizer, LoadTokenizer(directory));
  NativeEngineOptions options = CommandEngineOptions(compute);
  options.max_sequences = 1;
  FRESHET_ASSIGN_OR_RETURN(generator.engine, MakeModelEngine(*files, options));
  const ModelConfig& config = files->config();
  generator.model = {generator.engine->context(), config.vocab_size, config.eos_token_ids,
                     generator.engine->stats().cache_blocks};
  generator.defaults = openai::SamplingDefaults(config.generation_text);
  return generator;
}

ApiRequest MakeRequest(const PromptSampling& sampling, const SamplingParams& defaults) {
  ApiRequest request;
  request.sampling = defaults;
  if (sampling.temperature >= 0) request.sampling.temperature = sampling.temperature;
  if (sampling.top_p > 0) request.sampling.top_p = sampling.top_p;
  if (sampling.top_k >= 0) request.sampling.top_k = static_cast<int32_t>(sampling.top_k);
  request.seed =
      sampling.seed == kRandomSeed ? std::random_device()() : static_cast<uint64_t>(sampling.seed);
  if (sampling.max_new_tokens > 0) {
    request.max_tokens = static_cast<int32_t>(sampling.max_new_tokens);
  }
  request.stop = sampling.stop;
  request.ignore_eos = sampling.ignore_eos;
  return request;
}

// Prints the response to the request's only prompt while it is generated, and returns its text.
absl::StatusOr<std::string> GenerateText(const TextGenerator& generator, ApiRequest request) {
  FRESHET_ASSIGN_OR_RETURN(
      const auto prompts,
      openai::EncodePrompts(request, generator.model, *generator.tokenizer, absl::Now()));
  const auto prompt_tokens = static_cast<int64_t>(prompts.front().size());
  // Also of a plain text.
  if (!request.max_tokens.has_value() && prompt_tokens < generator.model.context) {
    request.max_tokens = static_cast<int32_t>(generator.model.context - prompt_tokens);
  }
  GenerationRequest generation;
  generation.prompt_ids = prompts.front();
  generation.seed = *request.seed;
  generation.sample_indices = {0};
  FRESHET_ASSIGN_OR_RETURN(
      generation.sampling,
      openai::PlanSampling(request, prompt_tokens, generator.model, *generator.tokenizer));
  const std::vector<int32_t> stop_ids = generation.sampling.stop_ids;
  openai::ChoiceText choice(request.stop, /*include_stop=*/false,
                            generator.tokenizer->MakeStreamDecoder(/*skip_special=*/true));
  std::string text;
  const auto show = [&text](const std::string& piece) {
    Print(piece);
    text += piece;
  };
  generation.on_token = [&](const GeneratedToken& token) {
    const bool stop = token.finish == FinishReason::kStop &&
                      std::find(stop_ids.begin(), stop_ids.end(), token.token.id) != stop_ids.end();
    if (!stop) show(choice.Push(token.token.id));
  };
  FRESHET_RETURN_IF_ERROR(generator.engine->Submit(std::move(generation)));
  while (!generator.engine->Idle()) FRESHET_RETURN_IF_ERROR(generator.engine->Poll().status());
  show(choice.Finish());
  Print("\n");
  return text;
}

}  // namespace

absl::Status RunPrompt(const PromptCommand& command) {
  FRESHET_ASSIGN_OR_RETURN(const TextGenerator generator,
                           MakeGenerator(command.model, command.compute));
  ApiRequest request = MakeRequest(command.sampling, generator.defaults);
  request.prompts.push_back({.text = command.prompt, .ids = {}});
  return GenerateText(generator, std::move(request)).status();
}

absl::Status RunChat(const ChatCommand& command) {
  FRESHET_ASSIGN_OR_RETURN(const TextGenerator generator,
                           MakeGenerator(command.model, command.compute));
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  openai::Json messages = openai::Json::array();
  const auto add = [&messages](const char* role, std::string text) {
    messages.push_back({{"role", role}, {"content", ValidUtf8(std::move(text))}});
  };
  if (!command.system.empty()) add("system", command.system);
  for (std::string line;;) {
    if (terminal) Print("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    add("user", line);
    ApiRequest request = MakeRequest(command.sampling, generator.defaults);
    request.chat = true;
    request.conversation.messages = messages.dump();
    request.conversation.add_generation_prompt = true;
    FRESHET_ASSIGN_OR_RETURN(std::string answer, GenerateText(generator, std::move(request)));
    add("assistant", std::move(answer));
  }
  if (terminal) Print("\n");
  return absl::OkStatus();
}

}  // namespace freshet
