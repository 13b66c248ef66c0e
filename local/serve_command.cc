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
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "local/loaded_model.h"
#include "local/serve_probes.h"
#include "rollout/openai/api_service.h"
#include "rollout/openai/generation_loop.h"
#include "rollout/openai/tool_format.h"
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

openai::ToolCallFormat ToolFormat(const ServeCommand& command, const Tokenizer& tokenizer) {
  if (command.tool_calls == "hermes") return openai::ToolCallFormat::kHermes;
  if (command.tool_calls == "llama3_json") return openai::ToolCallFormat::kLlama3Json;
  if (command.tool_calls == "none") return openai::ToolCallFormat::kNone;
  const openai::ToolCallChoice choice = openai::ToolFormatOf(tokenizer);
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

openai::ApiServiceOptions ServiceOptions(const ServeCommand& command, const ModelConfig& config,
                                         const NativeEngine& engine, const Tokenizer& tokenizer,
                                         std::string api_key) {
  openai::ApiServiceOptions options;
  options.model_name = command.name.empty() ? DirectoryName(command.model) : command.name;
  options.model_path = command.model;
  options.model = {engine.context(), config.vocab_size, config.eos_token_ids,
                   engine.stats().cache_blocks, config.scalar_head};
  options.tool_format = ToolFormat(command, tokenizer);
  options.defaults = openai::SamplingDefaults(config.generation_text);
  options.api_key = std::move(api_key);
  options.local_hosts_only = runtime::IsLoopback(command.listen) && options.api_key.empty();
  return options;
}

absl::Status Serve(const ServeCommand& command) {
  std::string api_key;
  if (!command.api_key_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(api_key, runtime::ReadBearerToken(command.api_key_file, nullptr));
  }
  const auto counts = std::make_shared<openai::RequestCounts>();
  std::unique_ptr<ServeProbes> probes;  // before the model, which may take minutes
  if (!command.http_listen.empty()) {
    FRESHET_ASSIGN_OR_RETURN(probes, ServeProbes::Start(command.http_listen, command.tls, counts));
  }
  FRESHET_ASSIGN_OR_RETURN(const auto files, OpenModelDirectory(command.model, ModelKinds::kAny));
  FRESHET_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(command.model));
  NativeEngineOptions engine_options = CommandEngineOptions(command.compute);
  engine_options.max_sequences = command.max_sequences;
  FRESHET_ASSIGN_OR_RETURN(auto engine, MakeModelEngine(*files, engine_options));
  FRESHET_LOG(Info) << "event=kernels kernels=" << LogQuoted(engine->DescribeKernels());
  openai::ApiServiceOptions options =
      ServiceOptions(command, files->config(), *engine, *tokenizer, std::move(api_key));
  options.counts = counts;

  GenerationQueueOptions loop_options;
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
  limits.check_head = [&service](const runtime::HttpRequest& head) {
    return service.CheckHead(head);
  };
  runtime::HttpAsyncHandler handler = [&service](runtime::HttpRequest request,
                                                 std::shared_ptr<runtime::HttpReply> reply) {
    service.Handle(std::move(request), std::move(reply));
  };
  FRESHET_ASSIGN_OR_RETURN(
      const auto server,
      runtime::HttpServer::Start(command.listen, std::move(handler), limits, command.tls));
  Notification stop;
  const Interrupt interrupt([&stop](int count) {
    if (count > 1) ::_exit(kExitInterrupted);
    stop.Notify();
  });
  if (probes != nullptr) probes->Serving(loop);
  std::printf("serving on %s://%s%s\n", command.tls.enabled() ? "https" : "http",
              server->address().c_str(),
              probes == nullptr ? "" : StrCat(" http=", probes->address()).c_str());
  std::fflush(stdout);
  while (!stop.WaitFor(absl::Hours(1))) {
  }
  if (probes != nullptr) probes->Draining(loop);
  const absl::Duration grace = absl::Seconds(command.drain_timeout_s);
  if (!loop.Drain(grace)) {
    FRESHET_LOG(Warning) << "event=drain_timeout running=" << loop.stats().running;
  }
  loop.Stop();  // what still runs is answered with status 503
  server->Drain(kIoTimeout);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckListen(const ServeCommand& command) {
  FRESHET_RETURN_IF_ERROR(runtime::HttpServer::CheckListen(command.listen, kListenFlag));
  if (!command.http_listen.empty()) {
    FRESHET_RETURN_IF_ERROR(runtime::HttpServer::CheckListen(command.http_listen, "--http-listen"));
  }
  if (command.tls.cert.empty() != command.tls.key.empty()) {
    return InvalidArgument("--tls-cert and --tls-key go together: ",
                           command.tls.cert.empty() ? "--tls-cert" : "--tls-key", " is missing");
  }
  if (command.insecure || runtime::IsLoopback(command.listen)) return absl::OkStatus();
  if (!command.tls.enabled()) {
    return InvalidArgument(kListenFlag, " ", command.listen,
                           " is not a loopback address: give --tls-cert and --tls-key, or "
                           "--insecure for plaintext");
  }
  if (command.api_key_file.empty()) {
    return InvalidArgument(kListenFlag, " ", command.listen,
                           " is not a loopback address: give --api-key-file, or --insecure to "
                           "accept every caller");
  }
  return absl::OkStatus();
}

int RunServe(const ServeCommand& command) {
  SetLogRole("serve");
  const absl::Status status = Serve(command);
  return status.ok() ? kExitDone : FailContent(status);
}

}  // namespace freshet
