// freshet-local: the part of the `freshet` command that needs LibTorch. `freshet` starts it with
// the same arguments.
#include <algorithm>

#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "local/local_command.h"
#include "local/model_commands.h"
#include "local/prompt_commands.h"
#include "local/serve_command.h"
#include "model/program_memory.h"
#include "rollout/engine/sampling.h"
#include "rollout/openai/api_request.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/reward_flags.h"
#include "trainer/rank_process.h"

namespace {

int Finish(const absl::Status& status) {
  if (!status.ok()) freshet::PrintError(status);
  return freshet::ContentExitCode(status);
}

void AddComputeFlags(const freshet::Command& command, freshet::ComputeOptions& compute) {
  command.Add("--dtype", compute.dtype).OneOf({"fp32", "bf16", "int8"});
  command.Add("--device", compute.device, "auto, cpu, cuda or cuda:N (a GPU, not with int8)");
  command
      .Add("--kv-cache-bytes", compute.kv_cache_bytes,
           "of the engine (default: 4 GiB, at most a quarter of the container's memory)")
      .Range(int64_t{1}, int64_t{1} << 50);
}

absl::Status CheckSampling(const freshet::PromptSampling& sampling) {
  if (sampling.temperature > 0 && sampling.temperature < freshet::kMinTemperature) {
    return freshet::InvalidArgument("--temperature ", sampling.temperature,
                                    ": want 0 or a number from ", freshet::kMinTemperature);
  }
  for (const std::string& stop : sampling.stop) {
    if (!stop.empty() && stop.size() <= freshet::openai::kMaxStopStringBytes) continue;
    return freshet::InvalidArgument("--stop: a text has ", stop.size(), " bytes, want 1 to ",
                                    freshet::openai::kMaxStopStringBytes);
  }
  return absl::OkStatus();
}

// Flags of commands that write text.
void AddSamplingFlags(const freshet::Command& command, freshet::PromptSampling& sampling) {
  command.Add("--max-new-tokens", sampling.max_new_tokens, "default: what the context leaves")
      .Range(1, 1 << 20);
  command.Add("--temperature", sampling.temperature, "0: the most likely token").Range(0.0, 100.0);
  command.Add("--top-p", sampling.top_p).Range(1e-6, 1.0);
  command.Add("--top-k", sampling.top_k, "0: all tokens").Range(0, 1 << 30);
  command.Add("--seed", sampling.seed, "of the sampling; default: a random one");
  command.Add("--stop", sampling.stop, "text that ends an answer").OneValueEach();
  command.AddFlag("--ignore-eos", sampling.ignore_eos, "do not stop at end tokens");
  command.AfterParsing([&sampling] { return CheckSampling(sampling); });
}

struct Generate {
  freshet::GenerateCommand ids;   // with --ids
  freshet::PromptCommand prompt;  // without
  bool greedy = false;
};

int RunGenerate(Generate& generate) {
  freshet::PromptSampling& sampling = generate.prompt.sampling;
  generate.prompt.model = generate.ids.model;
  generate.prompt.compute = generate.ids.compute;
  if (generate.ids.ids_file.empty()) {
    if (generate.greedy) sampling.temperature = 0;
    return Finish(freshet::RunPrompt(generate.prompt));
  }
  generate.ids.max_new_tokens = sampling.max_new_tokens;
  generate.ids.temperature = std::max(sampling.temperature, 0.0);
  if (sampling.seed != freshet::kRandomSeed) generate.ids.seed = sampling.seed;
  generate.ids.ignore_eos = sampling.ignore_eos;
  return Finish(freshet::RunGenerate(generate.ids));
}

void AddGenerate(const freshet::Command& app) {
  Generate& generate = app.Keep<Generate>();
  const freshet::Command command =
      app.AddCommand("generate", "continue a text, or token sequences with --ids");
  command.Add("MODEL", generate.ids.model, "Hugging Face directory").Required();
  const freshet::Option prompt = command.Add("PROMPT", generate.prompt.prompt, "text to continue");
  const freshet::Option ids = command.Add("--ids", generate.ids.ids_file,
                                          "one JSON array of ids per line; writes ids and "
                                          "log-probs, greedy without --temperature");
  command.AddFlag("--greedy", generate.greedy, "the most likely token, as --temperature 0");
  AddSamplingFlags(command, generate.prompt.sampling);
  AddComputeFlags(command, generate.ids.compute);
  command.AfterParsing([&generate, prompt, ids] {
    const freshet::PromptSampling& sampling = generate.prompt.sampling;
    if (prompt.given() == ids.given()) {
      return absl::InvalidArgumentError("give either PROMPT or --ids");
    }
    if (generate.greedy && sampling.temperature >= 0) {
      return absl::InvalidArgumentError("--greedy excludes --temperature");
    }
    if (ids.given() && sampling.max_new_tokens < 0) {
      return absl::InvalidArgumentError("--ids needs --max-new-tokens");
    }
    if (ids.given() && (sampling.top_p > 0 || sampling.top_k >= 0 || !sampling.stop.empty())) {
      return absl::InvalidArgumentError("--ids excludes --top-p, --top-k and --stop");
    }
    return absl::OkStatus();
  });
  command.OnRun([&generate] { return RunGenerate(generate); });
}

void AddServe(const freshet::Command& app) {
  freshet::ServeCommand& serve = app.Keep<freshet::ServeCommand>();
  const freshet::Command command = app.AddCommand("serve", "serve a model with OpenAI's API");
  command.Add("MODEL", serve.model, "Hugging Face directory").Required();
  command.Add("--listen", serve.listen, "HOST:PORT; port 0: any free one").ShowDefault();
  command.Add("--http-listen", serve.http_listen,
              "HOST:PORT for /healthz, /readyz and /metrics, in plaintext; default: none");
  command.Add("--name", serve.name, "the model's name in the API (default: the directory's)");
  AddComputeFlags(command, serve.compute);
  command.Add("--tool-calls", serve.tool_calls, "how the model calls tools")
      .OneOf({"auto", "hermes", "llama3_json", "none"})
      .ShowDefault();
  command.Add("--api-key-file", serve.api_key_file, "file with the key that callers must give");
  command.Add("--tls-cert", serve.tls.cert, "PEM file: certificate chain, for https");
  command.Add("--tls-key", serve.tls.key, "PEM file: its private key");
  command.AddFlag("--insecure", serve.insecure,
                  "allow non-loopback addresses without TLS or an API key");
  command.Add("--max-sequences", serve.max_sequences, "answers generated at a time")
      .Range(1, 65536)
      .ShowDefault();
  command.Add("--threads", serve.compute.threads, "of the engine (default: one per CPU)")
      .Range(1, 256);
  command.Add("--max-waiting", serve.max_waiting, "prompts that wait; more get status 429")
      .Range(1, 1 << 20)
      .ShowDefault();
  command.Add("--request-timeout-s", serve.request_timeout_s, "per request, with its wait")
      .Range(1, 86400)
      .ShowDefault();
  command.Add("--drain-timeout-s", serve.drain_timeout_s, "for running requests after SIGTERM")
      .Range(0, 86400)
      .ShowDefault();
  freshet::runtime::AddLogFlag(command);
  command.AfterParsing([&serve] { return freshet::CheckListen(serve); });
  command.OnRun([&serve] { return freshet::RunServe(serve); });
}

}  // namespace

int main(int argc, char** argv) {
  freshet::ShareHeap();
  freshet::CommandLine app("Freshet in one process", "freshet");
  app.AddVersionFlag(freshet::VersionLine("freshet-local"));
  app.RequireCommand();

  freshet::LocalCommand local;
  const freshet::Command run =
      app.AddCommand("local", "train a job with every role in this process");
  const freshet::Option job = run.Add("JOB", local.job_file, "job file (YAML)");
  const freshet::Option resume =
      run.Add("--resume", local.resume_dir, "resume the run in this folder");
  run.Add("--run-dir", local.run_dir,
          "run folder (default runs/NAME; with policies, RUN/POLICY for each)")
      .Excludes(resume);
  run.Add("--set", local.overrides, "override a key of the job: a.b=c").OneValueEach();
  run.AddFlag("--json", local.json, "rows of metrics.jsonl and events on stdout");
  freshet::runtime::AddLogFlag(run);
  run.Add("--metrics-port", local.metrics_port, "serve /metrics on this loopback port")
      .Range(1, 65535);
  run.Add("--status-listen", local.status_listen,
          "loopback HOST:PORT of the status page; \"\": none (default: any free port)");
  freshet::runtime::AddRewardFlags(run, local.rewards);
  run.Add("--crash-at", local.crash_at, "POINT:N: crash there, to test recovery").Hidden();
  job.Excludes(resume);
  run.AfterParsing([&local] {
    if (!local.job_file.empty() || !local.resume_dir.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("JOB or --resume is required");
  });
  run.OnRun([&local] { return freshet::RunLocalCommand(local); });

  freshet::ScoreCommand score;
  const freshet::Command score_command = app.AddCommand("score", "log-probs of token sequences");
  score_command.Add("MODEL", score.model, "Hugging Face directory").Required();
  score_command.Add("--ids", score.ids_file, "one JSON array of ids per line").Required();
  AddComputeFlags(score_command, score.compute);
  score_command.Add("--engine", score.engine, "which path computes them")
      .OneOf({"prefill", "decode", "trainer"});
  score_command.OnRun([&score] { return Finish(freshet::RunScore(score)); });

  AddGenerate(app);

  freshet::ChatCommand chat;
  const freshet::Command chat_command =
      app.AddCommand("chat", "talk to a model, one message per line of stdin");
  chat_command.Add("MODEL", chat.model, "Hugging Face directory").Required();
  chat_command.Add("--system", chat.system, "text of a system message");
  AddSamplingFlags(chat_command, chat.sampling);
  AddComputeFlags(chat_command, chat.compute);
  std::string& messages = chat_command.Keep<std::string>();
  chat_command.Add("--messages", messages,
                   "only render the conversations of this file with the chat template; with "
                   "--add-generation-prompt, --continue-final-message");
  chat_command.OnRun([&chat] { return Finish(freshet::RunChat(chat)); });

  AddServe(app);

  app.AddCommand(freshet::kRankCommand, "internal: a rank that freshet local starts").OnRun([] {
    const char* const name = freshet::kRankCommand;
    return freshet::RunRankProcess(1, &name);
  });
  return app.Run(argc, argv);
}
