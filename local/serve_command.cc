#include "local/serve_command.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/interrupt.h"
#include "base/json_document.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "local/loaded_model.h"
#include "rollout/openai/api_service.h"
#include "services/runtime/channel.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/http_server.h"
#include "text/tokenizer.h"

namespace freshet {
namespace {

constexpr char kListenFlag[] = "--listen";
constexpr size_t kMaxBodyBytes = size_t{4} << 20;
constexpr rlim_t kMaxConnections = 16'384;
constexpr rlim_t kOtherDescriptors = 256;  // of files and libraries
constexpr absl::Duration kIoTimeout = absl::Seconds(30);
constexpr absl::Duration kIdleTimeout = absl::Minutes(2);

// A directory's last part, also of "model/" and ".".
std::string DirectoryName(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory, error);
  return path.filename().empty() ? directory : path.filename().string();
}

absl::Status CheckAddress(const ServeCommand& command) {
  if (!runtime::ParseHostPort(command.listen).has_value()) {
    return InvalidArgument(kListenFlag, " ", command.listen, " is not HOST:PORT");
  }
  if (command.insecure || runtime::IsLoopback(command.listen)) return absl::OkStatus();
  return InvalidArgument(kListenFlag, " ", command.listen,
                         " is not a loopback address: put a proxy with TLS in front of one, or "
                         "give --insecure for plaintext");
}

// The chat templates of a tokenizer, "" without one.
std::string ChatTemplates(const Tokenizer& tokenizer) {
  std::string in_config;
  for (const TokenizerFile& file : tokenizer.Files()) {
    if (file.name == "chat_template.jinja") return file.content;
    if (file.name != "tokenizer_config.json") continue;
    const absl::StatusOr<nlohmann::json> config = ParseJson(file.content, file.name);
    if (!config.ok() || !config->is_object()) continue;
    const nlohmann::json templates = config->value("chat_template", nlohmann::json());
    in_config = templates.is_string() ? templates.get<std::string>() : templates.dump();
  }
  return in_config;
}

openai::ToolCallFormat ToolFormat(const ServeCommand& command, const Tokenizer& tokenizer) {
  if (command.tool_calls == "hermes") return openai::ToolCallFormat::kHermes;
  if (command.tool_calls == "llama3_json") return openai::ToolCallFormat::kLlama3Json;
  if (command.tool_calls == "none") return openai::ToolCallFormat::kNone;
  const auto is_token = [&tokenizer](std::string_view text) {
    const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
    return ids.ok() && ids->size() == 1;
  };
  const openai::ToolCallChoice choice =
      openai::DetectToolCallFormat(ChatTemplates(tokenizer), is_token);
  FRESHET_LOG(Info) << "event=tool_calls reason=" << LogQuoted(choice.reason);
  return choice.format;
}

// As many connections as the process may open.
size_t MaxConnections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  limit.rlim_cur = std::min(limit.rlim_max, kMaxConnections + kOtherDescriptors);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur > 2 * kOtherDescriptors ? limit.rlim_cur - kOtherDescriptors : 64;
}

absl::StatusOr<openai::ApiServiceOptions> ServiceOptions(const ServeCommand& command,
                                                         const ModelConfig& config, int64_t context,
                                                         const Tokenizer& tokenizer) {
  openai::ApiServiceOptions options;
  options.model_name = command.name.empty() ? DirectoryName(command.model) : command.name;
  options.model_path = command.model;
  options.model = {context, config.vocab_size, config.eos_token_ids};
  options.tool_format = ToolFormat(command, tokenizer);
  options.defaults = openai::SamplingDefaults(config.generation_text);
  if (!command.api_key_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(options.api_key,
                             runtime::ReadBearerToken(command.api_key_file, nullptr));
  }
  options.local_hosts_only = runtime::IsLoopback(command.listen) && options.api_key.empty();
  return options;
}

absl::Status Serve(const ServeCommand& command) {
  FRESHET_RETURN_IF_ERROR(CheckAddress(command));
  FRESHET_ASSIGN_OR_RETURN(LoadedModel model,
                           LoadModelDirectory(command.model, command.dtype == "bf16"));
  FRESHET_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(command.model));
  NativeEngineOptions engine_options =
      CommandEngineOptions(command.dtype == "bf16", command.threads);
  engine_options.max_sequences = command.max_sequences;
  FRESHET_ASSIGN_OR_RETURN(auto engine, MakeModelEngine(model, engine_options));
  FRESHET_ASSIGN_OR_RETURN(openai::ApiServiceOptions options,
                           ServiceOptions(command, model.config(), engine->context(), *tokenizer));
  model = LoadedModel();  // the engine has a copy of the weights

  openai::GenerationLoopOptions loop_options;
  loop_options.max_waiting = command.max_waiting;
  loop_options.request_timeout = absl::Seconds(command.request_timeout_s);
  openai::GenerationLoop loop(std::move(engine), loop_options, SystemClock::Get());
  openai::ApiService service(std::move(options), *tokenizer, loop, SystemClock::Get());

  runtime::HttpLimits limits;
  limits.max_connections = MaxConnections();
  limits.max_body_bytes = kMaxBodyBytes;
  limits.io_timeout = kIoTimeout;
  limits.answer_timeout = loop_options.request_timeout + kIoTimeout;
  limits.idle_timeout = kIdleTimeout;
  limits.refusal = &openai::ApiService::Refusal;
  limits.flag = kListenFlag;
  runtime::HttpAsyncHandler handler = [&service](runtime::HttpRequest request,
                                                 std::shared_ptr<runtime::HttpReply> reply) {
    service.Handle(std::move(request), std::move(reply));
  };
  FRESHET_ASSIGN_OR_RETURN(const auto server,
                           runtime::HttpServer::Start(command.listen, std::move(handler), limits));
  Notification stop;
  const Interrupt interrupt([&stop](int count) {
    if (count > 1) ::_exit(kExitInterrupted);
    stop.Notify();
  });
  std::printf("serving on http://%s\n", server->address().c_str());
  std::fflush(stdout);
  while (!stop.WaitFor(absl::Hours(1))) {
  }
  const absl::Duration grace = absl::Seconds(command.drain_timeout_s);
  const bool drained = loop.Drain(grace);
  if (!drained) FRESHET_LOG(Warning) << "event=drain_timeout running=" << loop.stats().running;
  server->Drain(drained ? kIoTimeout : absl::ZeroDuration());
  return absl::OkStatus();
}

}  // namespace

int RunServe(const ServeCommand& command) {
  SetLogRole("serve");
  const absl::Status status = Serve(command);
  return status.ok() ? kExitDone : FailContent(status);
}

}  // namespace freshet
