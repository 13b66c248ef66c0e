// Measures GRPO steps of the learner on a fixed batch. bench/trainer.py runs it beside peers.
//
//   trainer_bench step [--model T|M] [--dtype bf16|fp32] [--threads N] [...]
//   trainer_bench batch|head
//
// Prints one JSON object.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/str_cat.h"
#include "bench/model/bench_model.h"
#include "bench/trainer/fixed_batch.h"
#include "model/head_logprobs.h"
#include "model/torch_threads.h"
#include "nlohmann/json.hpp"
#include "trainer/learner/policy_learner.h"
#include "trainer/loss/loss.h"

namespace freshet {
namespace {

struct Workload {
  std::string model = "T";
  std::string dtype = "bf16";
  std::string form = "shared";
  std::string device = "cpu";
  int threads = 1;
  int rounds = 3;
  int minibatches = 1;
  int max_tokens = 8192;
  BatchShape batch;
};

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "trainer_bench: %s\n", message.c_str());
  std::exit(1);
}

// A field of /proc/self/status in bytes.
int64_t MemoryField(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kibibytes = 0;
    if (word == field + ":" && status >> kibibytes) return kibibytes * 1024;
  }
  Fail("/proc/self/status has no " + field);
}

// Lets VmHWM begin again.
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::vector<TrainGroup> MakeBatch(const Workload& workload) {
  std::vector<TrainGroup> groups = FixedBatch(workload.batch);
  if (workload.form == "padded") groups = Padded(groups);
  return workload.form == "shared" ? groups : Separated(groups);
}

nlohmann::json RunSteps(const Workload& workload) {
  UseOneTorchThread();
  PolicyLearnerOptions options;
  options.model = BenchModel(workload.model);
  options.bf16 = workload.dtype == "bf16";
  options.device = workload.device;
  options.threads = workload.threads;
  // A group of one sample has no advantage of its own.
  if (workload.form != "shared") options.loss.advantage = AdvantageKind::kReinforcePp;
  options.minibatches_per_step = workload.minibatches;
  options.max_tokens_per_microbatch = workload.max_tokens;
  options.max_new_tokens = workload.batch.longest;
  options.schedule.peak = 1e-6;
  options.schedule.total_steps = 1000;
  auto learner = PolicyLearner::Create(options, SystemClock::Get());
  if (!learner.ok()) Fail(Message(learner.status()));
  (*learner)->InitializeRandom(1);
  const std::vector<TrainGroup> groups = MakeBatch(workload);
  int64_t tokens = 0;  // without padding
  for (const TrainGroup& group : FixedBatch(workload.batch)) {
    for (const TrainSample& sample : group.samples) tokens += std::ssize(sample.loss_mask);
  }
  const int64_t before = MemoryField("VmRSS");
  ResetPeak();
  nlohmann::json steps = nlohmann::json::array();
  for (int step = 1; step <= workload.rounds + 1; ++step) {
    const bool warms_up = step == 1;  // with a part of the batch, not measured
    const absl::Time start = SystemClock::Get().Now();
    const auto result = (*learner)->TrainStep(
        step,
        {groups.begin(), warms_up ? groups.begin() + std::max<ptrdiff_t>(1, std::ssize(groups) / 4)
                                  : groups.end()});
    if (!result.ok()) Fail(Message(result.status()));
    if (warms_up) continue;
    steps.push_back({{"seconds", absl::ToDoubleSeconds(SystemClock::Get().Now() - start)},
                     {"optimizer_seconds", result->optimizer_seconds},
                     {"tokens", tokens},
                     {"model_flops", result->model_flops},
                     {"loss", result->loss},
                     {"grad_norm", result->grad_norm}});
  }
  return {{"steps", steps},
          {"parameters", (*learner)->num_parameters()},
          {"bytes_before", before},
          {"peak_bytes", MemoryField("VmHWM")}};
}

// Runs head and loss of `rows` rows forwards and backwards. Returns the peak of memory, in bytes,
// beyond operands and their gradients.
int64_t RunHeadOnce(int64_t rows) {
  const ModelConfig config = BenchModel("M");
  const at::Tensor hidden = at::randn({rows, config.hidden_size}).set_requires_grad(true);
  const at::Tensor head =
      at::randn({config.vocab_size, config.hidden_size}).mul_(0.02).to(at::kBFloat16);
  const at::Tensor targets = at::arange(rows);
  LossInputs inputs;
  inputs.behavior_logprobs_N = at::full({rows}, -std::log(static_cast<double>(config.vocab_size)));
  inputs.advantages_N = at::linspace(-1, 1, rows);
  inputs.loss_mask_N = at::ones({rows});
  inputs.sequence_index_N = at::zeros({rows}, at::kLong);
  inputs.num_sequences = 1;
  const at::Tensor gradients = at::zeros(head.sizes());
  const int64_t before = MemoryField("VmRSS");
  ResetPeak();
  const TargetLogprobs out = HeadLogprobs(hidden, head, targets, targets % config.vocab_size, 1.0,
                                          Entropy::kValue, gradients);
  inputs.logprobs_N = out.logprobs_M;
  inputs.proximal_logprobs_N = out.logprobs_M.detach();
  const auto tokens = static_cast<double>(rows);
  const auto loss = PolicyLoss({}, inputs, {tokens, 1, tokens});
  if (!loss.ok()) Fail(Message(loss.status()));
  const auto grads = torch::autograd::grad({loss->loss}, {hidden});
  return MemoryField("VmHWM") - before - static_cast<int64_t>(grads[0].nbytes());
}

nlohmann::json RunHead() {
  UseOneTorchThread();
  RunHeadOnce(32);  // loads LibTorch's code
  return {{"peak_bytes", RunHeadOnce(4096)}};
}

int Main(int argc, char** argv) {
  CommandLine app("how fast the learner trains", "trainer_bench");
  app.RequireCommand();
  Workload workload;
  const auto add = [&](const char* name, const char* help, std::function<nlohmann::json()> run) {
    const Command command = app.AddCommand(name, help);
    command.Add("--model", workload.model, "T: 33.6 M parameters; M: 415 M").OneOf({"T", "M"});
    command.Add("--dtype", workload.dtype, "of the computation").OneOf({"bf16", "fp32"});
    command
        .Add("--form", workload.form,
             "shared: prompts of groups computed once; packed: once per sample; padded: all "
             "samples as long as the longest")
        .OneOf({"shared", "packed", "padded"});
    command.Add("--device", workload.device, "cpu, cuda or cuda:N");
    command.Add("--threads", workload.threads).Range(1, 256);
    command.Add("--rounds", workload.rounds).Positive();
    command.Add("--minibatches", workload.minibatches).Positive();
    command.Add("--max-tokens", workload.max_tokens, "of a microbatch").Positive();
    command.Add("--prompts", workload.batch.prompts).Positive();
    command.Add("--samples", workload.batch.samples, "of each prompt").Positive();
    command.Add("--prompt", workload.batch.prompt_tokens, "tokens of a prompt").Positive();
    command.Add("--shortest", workload.batch.shortest, "tokens of a response").Positive();
    command.Add("--longest", workload.batch.longest, "tokens of a response").Positive();
    command.OnRun([&workload, run = std::move(run)] {
      workload.batch.vocab_size = static_cast<int>(BenchModel(workload.model).vocab_size);
      std::printf("%s\n", run().dump().c_str());
      return 0;
    });
  };
  add("step", "training steps", [&] { return RunSteps(workload); });
  add("head", "memory of head and loss", RunHead);
  add("batch", "the samples", [&] { return ToJson(MakeBatch(workload)); });
  return app.Run(argc, argv);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
