#include "rollout/service/engine_choice.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/parameter_layout.h"
#include "rollout/server_engine/server_engine.h"
#include "rollout/server_engine/sglang_protocol.h"
#include "rollout/server_engine/vllm_protocol.h"
#include "services/runtime/process_identity.h"

namespace freshet {

absl::Duration LoadTimeout(const ModelConfig& model) {
  constexpr double kBytesPerSecond = 50e6;  // from memory, with a margin of ten
  const auto bytes = 2 * static_cast<double>(MakeParameterLayout(model).num_parameters);
  return absl::Minutes(1) + absl::Seconds(bytes / kBytesPerSecond);
}

namespace {

ServerEngineOptions OptionsOf(const job::v1::JobSpec& spec, const ModelConfig& model,
                              double time_scale) {
  ServerEngineOptions options;
  options.server.load_timeout = LoadTimeout(model);
  options.max_sequences = std::max(spec.rollout().max_sequences(), spec.group_size());
  options.request_prefix = runtime::RandomId();
  options.server.recompute_kv = spec.weight_sync().kv() == "recompute";
  for (absl::Duration* time :
       {&options.server.probe_period, &options.server.probe_timeout, &options.server.call_timeout,
        &options.stall_timeout, &options.retry_delay}) {
    *time *= time_scale;
  }
  return options;
}

}  // namespace

void AddEngineFlags(const Command& app, EngineFlags& flags) {
  app.Add("--engine", flags.kind,
          "what generates: native, or the inference server at --engine-address")
      .OneOf({"native", "vllm", "sglang"})
      .ShowDefault();
  app.Add("--engine-address", flags.address, "HOST:PORT of the inference server");
  app.Add("--engine-dir", flags.folder,
          "folder shared with the inference server, for weights; used by no other rollout");
  app.Add("--engine-weights", flags.weights,
          "how a running server gets new weights: folder (it reads --engine-dir) or nccl (vLLM "
          "only: this process broadcasts them from its GPU)")
      .OneOf({"folder", "nccl"})
      .ShowDefault();
  app.AfterParsing([&flags]() -> absl::Status {
    const bool native = flags.kind == "native";
    if (native && (!flags.address.empty() || !flags.folder.empty())) {
      return InvalidArgument("--engine-address and --engine-dir need --engine vllm or sglang");
    }
    if (flags.weights == "nccl" && flags.kind != "vllm") {
      return InvalidArgument("--engine-weights nccl needs --engine vllm, not ", flags.kind,
                             ": other engines have no such route; leave it at folder");
    }
    if (native) return absl::OkStatus();
    if (flags.address.empty() || flags.folder.empty()) {
      return InvalidArgument("--engine ", flags.kind, " needs --engine-address and --engine-dir");
    }
    const auto calls = runtime::OpenHttpCalls(flags.address);
    return calls.ok() ? absl::OkStatus()
                      : InvalidArgument("--engine-address: ", Message(calls.status()));
  });
}

absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenEngineTransfer(
    const EngineFlags& flags, const OpenCommunicatorBackend& open) {
  if (flags.weights != "nccl") return nullptr;
  absl::StatusOr<std::shared_ptr<CommunicatorBackend>> opened = open("nccl");
  if (opened.ok()) return opened;
  return StatusOf(opened.status().code(),
                  "--engine-weights nccl needs NCCL, the CUDA runtime and a GPU of this process: ",
                  Message(opened.status()), "; install them, or use --engine-weights folder");
}

EngineFactory ChooseEngine(const EngineFlags& flags, EngineFactory make_native,
                           std::shared_ptr<CommunicatorBackend> transfer, const Clock& clock) {
  return [flags, make_native = std::move(make_native), transfer = std::move(transfer), &clock](
             const job::v1::JobSpec& spec,
             const ModelConfig& model) -> absl::StatusOr<std::unique_ptr<InferenceEngine>> {
    // A controller of an older version knows no engines. Its jobs have no such key.
    const std::string wanted =
        spec.rollout().has_engine() ? spec.rollout().engine() : std::string("native");
    if (wanted != flags.kind) {
      return FailedPrecondition("the job needs rollout.engine ", wanted, ", this rollout has ",
                                flags.kind);
    }
    if (flags.kind == "native") return make_native(spec, model);
    ServerEngineOptions options = OptionsOf(spec, model, flags.time_scale);
    FRESHET_ASSIGN_OR_RETURN(auto calls, runtime::OpenHttpCalls(flags.address));
    FRESHET_ASSIGN_OR_RETURN(auto folder,
                             WeightsFolder::Open(flags.folder, options.request_prefix, model));
    const ServerProtocol& protocol = flags.kind == "sglang" ? SglangProtocol() : VllmProtocol();
    return std::make_unique<ServerEngine>(
        protocol, model, std::move(calls), std::move(folder), clock, std::move(options),
        transfer == nullptr ? nullptr : std::make_unique<WeightTransfer>(transfer, model, clock));
  };
}

}  // namespace freshet
