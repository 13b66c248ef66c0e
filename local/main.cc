// freshet-local: the part of the `freshet` command that needs LibTorch. `freshet` starts it with
// the same arguments.
#include "base/command_line.h"
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
  freshet::CommandLine app("Freshet in one process", "freshet");
  app.AddVersionFlag(freshet::VersionLine("freshet-local"));
  app.RequireCommand();

  freshet::LocalCommand local;
  const freshet::Command run =
      app.AddCommand("local", "train a job with every role in this process");
  const freshet::Option job = run.Add("JOB", local.job_file, "job file (YAML)");
  const freshet::Option resume =
      run.Add("--resume", local.resume_dir, "resume the run in this folder");
  run.Add("--run-dir", local.run_dir, "run folder (default runs/NAME)").Excludes(resume);
  run.Add("--set", local.overrides, "override a key of the job: a.b=c").OneValueEach();
  run.AddFlag("--json", local.json, "rows of metrics.jsonl and events on stdout");
  freshet::runtime::AddLogFlag(run);
  run.Add("--metrics-port", local.metrics_port, "serve /metrics on this loopback port")
      .Range(1, 65535);
  run.Add("--status-listen", local.status_listen,
          "loopback HOST:PORT of the status page; \"\": none (default: any free port)");
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
  score_command.Add("--dtype", score.dtype).OneOf({"fp32", "bf16"});
  score_command.Add("--engine", score.engine, "which path computes them")
      .OneOf({"prefill", "decode", "trainer"});
  score_command.OnRun([&score] { return Finish(freshet::RunScore(score)); });

  freshet::GenerateCommand generate;
  bool greedy = false;
  const freshet::Command generate_command = app.AddCommand("generate", "continue token sequences");
  generate_command.Add("MODEL", generate.model, "Hugging Face directory").Required();
  generate_command.Add("--ids", generate.ids_file, "one JSON array of ids per line").Required();
  const freshet::Option greedy_flag =
      generate_command.AddFlag("--greedy", greedy, "most likely token (default)");
  generate_command.Add("--temperature", generate.temperature, "sample instead")
      .Range(0.0, 100.0)
      .Excludes(greedy_flag);
  generate_command.Add("--seed", generate.seed, "of the sampling");
  generate_command.Add("--max-new-tokens", generate.max_new_tokens).Required().Range(1, 1 << 20);
  generate_command.AddFlag("--ignore-eos", generate.ignore_eos, "do not stop at end tokens");
  generate_command.Add("--dtype", generate.dtype).OneOf({"fp32", "bf16"});
  generate_command.OnRun([&generate] { return Finish(freshet::RunGenerate(generate)); });
  return app.Run(argc, argv);
}
