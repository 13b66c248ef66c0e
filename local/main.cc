// freshet-local: the part of the `freshet` command that needs LibTorch. `freshet` starts it with
// the same arguments.
#include "CLI/CLI.hpp"
#include "base/exit_code.h"
#include "base/version.h"
#include "local/local_command.h"
#include "local/model_commands.h"
#include "services/runtime/endpoint_options.h"

namespace {

int Finish(const absl::Status& status) {
  if (!status.ok()) freshet::PrintError(status);
  return freshet::ContentExitCode(status);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Freshet in one process", "freshet");
  app.set_version_flag("--version", freshet::VersionLine("freshet-local"));
  app.require_subcommand(1);

  freshet::LocalCommand local;
  CLI::App* run = app.add_subcommand("local", "train a job with every role in this process");
  auto* job = run->add_option("JOB", local.job_file, "job file (YAML)");
  auto* resume = run->add_option("--resume", local.resume_dir, "resume the run in this folder");
  run->add_option("--run-dir", local.run_dir, "run folder (default runs/NAME)")->excludes(resume);
  run->add_option("--set", local.overrides, "override a key of the job: a.b=c")
      ->allow_extra_args(false);
  run->add_flag("--json", local.json, "rows of metrics.jsonl and events on stdout");
  freshet::runtime::AddLogFlag(*run);
  run->add_option("--metrics-port", local.metrics_port, "serve /metrics on this loopback port")
      ->check(CLI::Range(1, 65535));
  run->add_option("--status-listen", local.status_listen,
                  "loopback HOST:PORT of the status page; \"\": none (default: any free port)");
  run->add_option("--crash-at", local.crash_at, "POINT:N: crash there, to test recovery")
      ->group("");
  job->excludes(resume);

  freshet::ScoreCommand score;
  CLI::App* score_command = app.add_subcommand("score", "log-probs of token sequences");
  score_command->add_option("MODEL", score.model, "Hugging Face directory")->required();
  score_command->add_option("--ids", score.ids_file, "one JSON array of ids per line")->required();
  score_command->add_option("--dtype", score.dtype)->check(CLI::IsMember({"fp32", "bf16"}));
  score_command->add_option("--engine", score.engine, "which path computes them")
      ->check(CLI::IsMember({"prefill", "decode", "trainer"}));

  freshet::GenerateCommand generate;
  bool greedy = false;
  CLI::App* generate_command = app.add_subcommand("generate", "continue token sequences");
  generate_command->add_option("MODEL", generate.model, "Hugging Face directory")->required();
  generate_command->add_option("--ids", generate.ids_file, "one JSON array of ids per line")
      ->required();
  auto* greedy_flag = generate_command->add_flag("--greedy", greedy, "most likely token (default)");
  generate_command->add_option("--temperature", generate.temperature, "sample instead")
      ->check(CLI::Range(0.0, 100.0))
      ->excludes(greedy_flag);
  generate_command->add_option("--seed", generate.seed, "of the sampling");
  generate_command->add_option("--max-new-tokens", generate.max_new_tokens)
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  generate_command->add_flag("--ignore-eos", generate.ignore_eos, "do not stop at end tokens");
  generate_command->add_option("--dtype", generate.dtype)->check(CLI::IsMember({"fp32", "bf16"}));

  try {
    app.parse(argc, argv);
    if (*run && local.job_file.empty() && local.resume_dir.empty()) {
      throw CLI::RequiredError("JOB or --resume");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? freshet::kExitDone : freshet::kExitCommandLine;
  }
  if (*score_command) return Finish(freshet::RunScore(score));
  if (*generate_command) return Finish(freshet::RunGenerate(generate));
  return freshet::RunLocalCommand(local);
}
