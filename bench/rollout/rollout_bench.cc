// Measures the native engine on a random model, one workload per run. bench/rollout.py runs them in
// alternating order and prints the table.
//
//   rollout_bench decode|prefill|turns|lengths|swap|score [--model T|M] [--threads N] [...]
//   rollout_bench ceilings|device|kernels|products|write
//
// Prints one JSON object.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/random.h"
#include "base/str_cat.h"
#include "bench/model/bench_model.h"
#include "bench/rollout/machine.h"
#include "model/parameter_layout.h"
#include "model/torch_threads.h"
#include "nlohmann/json.hpp"
#include "rollout/engine/native_engine.h"

namespace freshet {
namespace {

constexpr int kRequestsPerPlace = 12;
constexpr int kWarmUpIds = 1 << 20;  // above those of measured requests

struct Workload {
  std::string model = "T";
  std::string dtype = "bf16";
  int threads = 1;
  bool aten = false;
  std::string device = "cpu";
  std::string kernels;  // empty: chosen as in a job
  bool no_prefix_cache = false;
  int speculative = 0;
  int groups = 8;
  int samples = 8;
  int prompt = 128;
  int generate = 128;
  int turns = 8;
  bool is_static = false;  // wait for a whole batch before the next one
};

double Seconds(absl::Time start) { return absl::ToDoubleSeconds(SystemClock::Get().Now() - start); }

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "rollout_bench: %s\n", message.c_str());
  std::exit(1);
}

class Bench {
 public:
  explicit Bench(const Workload& workload)
      : workload_(workload), config_(BenchModel(workload.model)) {
    UseOneTorchThread();
    NativeEngineOptions options;
    options.bf16 = workload.dtype == "bf16";
    options.int8_weights = workload.dtype == "int8";
    options.threads = workload.threads;
    options.aten = workload.aten;
    options.device = workload.device;
    for (int set = 0; set <= static_cast<int>(BestCpuKernels()); ++set) {
      const auto kernels = static_cast<CpuKernels>(set);
      if (workload.kernels == CpuKernelsName(kernels)) options.kernels = kernels;
    }
    if (!workload.kernels.empty() && !options.kernels.has_value()) {
      Fail("this CPU has no kernels " + workload.kernels);
    }
    options.prefix_cache = !workload.no_prefix_cache;
    options.speculative_tokens = workload.speculative;
    auto engine = NativeEngine::Create(config_, options);
    if (!engine.ok()) Fail(Message(engine.status()));
    engine_ = *std::move(engine);
    snapshot_.bytes = BenchWeights(config_, options.bf16 ? Dtype::kBf16 : Dtype::kF32);
    Load(0);
  }

  void Load(int64_t version) {
    snapshot_.manifest.policy = {0, version};
    const absl::Status loaded = engine_->LoadWeights(Lane::kRollout, snapshot_);
    if (!loaded.ok()) Fail(Message(loaded));
  }
  GenerationRequest Request(int64_t id, int prompt, int samples, int generate) const {
    GenerationRequest request;
    request.id = request.ordinal = id;
    request.seed = 1;
    for (int i = 0; i < prompt; ++i) {
      request.prompt_ids.push_back(
          static_cast<int32_t>(RandomBits(2, static_cast<uint64_t>(id), static_cast<uint64_t>(i)) %
                               static_cast<uint64_t>(config_.vocab_size)));
    }
    for (int i = 0; i < samples; ++i) request.sample_indices.push_back(i);
    request.sampling.max_new_tokens = generate;
    return request;
  }
  void Submit(GenerationRequest request) {
    const absl::Status submitted = engine_->Submit(std::move(request));
    if (!submitted.ok()) Fail(Message(submitted));
  }
  std::vector<GenerationOutput> Poll() {
    auto outputs = engine_->Poll();
    if (!outputs.ok()) Fail(Message(outputs.status()));
    return *std::move(outputs);
  }
  void Drain() {
    while (!engine_->Idle()) Poll();
  }

  // Computes other prompts of the same lengths, so that memory is touched and threads run. The
  // peers answer all rounds in one process.
  void WarmUp() {
    for (int g = 0; g < workload_.groups; ++g) {
      Submit(Request(kWarmUpIds + g, workload_.prompt, workload_.samples, 2));
    }
    Drain();
  }

  // Groups of samples, all at once: prompts first, then one token a step.
  nlohmann::json Decode() {
    WarmUp();
    const int64_t warm = engine_->stats().tokens_generated;
    for (int g = 0; g < workload_.groups; ++g) {
      Submit(Request(g, workload_.prompt, workload_.samples, workload_.generate));
    }
    const absl::Time start = SystemClock::Get().Now();
    while (engine_->stats().tokens_generated - warm < workload_.groups * workload_.samples) Poll();
    const double prefill = Seconds(start);
    const int64_t first = engine_->stats().tokens_generated;
    const PhaseClock before = engine_->phases();
    const absl::Time decoding = SystemClock::Get().Now();
    Drain();
    return {{"prefill_seconds", prefill},
            {"decode_seconds", Seconds(decoding)},
            {"decode_tokens", engine_->stats().tokens_generated - first},
            {"phases", Phases(before)},
            {"seconds", Seconds(start)},
            {"tokens", engine_->stats().tokens_generated - warm}};
  }

  nlohmann::json Prefill() {
    WarmUp();
    for (int g = 0; g < workload_.groups; ++g) Submit(Request(g, workload_.prompt, 1, 1));
    const PhaseClock before = engine_->phases();
    const absl::Time start = SystemClock::Get().Now();
    Drain();
    return {{"seconds", Seconds(start)},
            {"phases", Phases(before)},
            {"tokens", workload_.groups * workload_.prompt}};
  }

  // Conversations: every turn appends an observation of `prompt` tokens and generates.
  nlohmann::json Turns() {
    std::vector<Response> responses(static_cast<size_t>(workload_.groups));
    const PhaseClock before = engine_->phases();
    const absl::Time start = SystemClock::Get().Now();
    for (int turn = 0; turn < workload_.turns; ++turn) {
      for (int g = 0; g < workload_.groups; ++g) {
        Response& kept = responses[static_cast<size_t>(g)];
        if (turn > 0) {
          for (int i = 0; i < workload_.prompt; ++i) kept.response_ids.push_back(g + i);
          kept.finish = FinishReason::kNone;
          kept.behavior_logprobs.resize(kept.response_ids.size());
          kept.loss_mask.resize(kept.response_ids.size());
        }
        GenerationRequest request =
            Request(g, workload_.prompt, 1,
                    static_cast<int>(kept.response_ids.size()) + workload_.generate);
        if (turn > 0) request.partials = {kept};
        Submit(std::move(request));
      }
      while (!engine_->Idle()) {
        for (GenerationOutput& output : Poll()) {
          responses[static_cast<size_t>(output.request_id)] = std::move(output.response);
        }
      }
    }
    return {{"seconds", Seconds(start)},
            {"tokens", engine_->stats().tokens_generated},
            {"phases", Phases(before)},
            {"reused", engine_->stats().tokens_reused}};
  }

  // Log-normal response lengths. Continuous batching fills a place as soon as it is free. Measured
  // while prompts wait, as they do during training.
  nlohmann::json Lengths() {
    const int slots = workload_.groups;
    std::deque<GenerationRequest> waiting;
    for (int i = 0; i < slots * kRequestsPerPlace; ++i) {
      const double u1 = 1.0 - ToUniform(RandomBits(3, static_cast<uint64_t>(i), 0));
      const double u2 = ToUniform(RandomBits(3, static_cast<uint64_t>(i), 1));
      const double normal = std::sqrt(-2.0 * std::log(u1)) * std::cos(6.283185307179586 * u2);
      const int length =
          std::clamp(static_cast<int>(workload_.generate * std::exp(normal)), 1, 2048);
      waiting.push_back(Request(i, workload_.prompt, 1, length));
    }
    const PhaseClock before = engine_->phases();
    const absl::Time start = SystemClock::Get().Now();
    int64_t steps = 0;
    while (true) {
      const bool admit = !workload_.is_static || engine_->Idle();
      while (admit && !waiting.empty() && engine_->stats().running_sequences < slots) {
        Submit(std::move(waiting.front()));
        waiting.pop_front();
      }
      if (waiting.empty()) break;
      Poll();
      ++steps;
    }
    return {{"seconds", Seconds(start)},
            {"tokens", engine_->stats().tokens_generated},
            {"phases", Phases(before)},
            {"filled_places", static_cast<double>(engine_->stats().tokens_generated) /
                                  static_cast<double>(steps * slots)}};
  }

  // Medians of a decode step and of a swap of weights between two steps.
  nlohmann::json Swap() {
    for (int g = 0; g < workload_.groups; ++g) {
      Submit(Request(g, workload_.prompt, workload_.samples, workload_.generate));
    }
    while (engine_->stats().tokens_generated < workload_.groups * workload_.samples) Poll();
    std::vector<double> steps;
    std::vector<double> swaps;
    for (int64_t step = 1; !engine_->Idle(); ++step) {
      if (step % 16 == 0) {
        // New bytes, for the engine knows those that it has.
        snapshot_.bytes = MakeWeightBytes({snapshot_.bytes->begin(), snapshot_.bytes->end()});
        const absl::Time start = SystemClock::Get().Now();
        Load(step);
        swaps.push_back(Seconds(start));
      }
      const absl::Time start = SystemClock::Get().Now();
      Poll();
      steps.push_back(Seconds(start));
    }
    std::sort(steps.begin(), steps.end());
    std::sort(swaps.begin(), swaps.end());
    return {{"step_seconds", steps[steps.size() / 2]}, {"swap_seconds", swaps[swaps.size() / 2]}};
  }

  // Log-probs of the tokens of a prompt.
  nlohmann::json Score() {
    const std::vector<int32_t> ids = Request(0, workload_.prompt, 1, 1).prompt_ids;
    const auto logprobs = engine_->Score(ids, /*one_by_one=*/false);
    if (!logprobs.ok()) Fail(Message(logprobs.status()));
    return {{"ids", ids}, {"logprobs", *logprobs}};
  }

  // Parameters of matrix products: all but the embedding and the norms.
  int64_t multiplied_parameters() const {
    int64_t total = 0;
    for (const ParameterEntry& entry : MakeParameterLayout(config_).entries) {
      if (entry.shape.size() == 2) total += entry.size;
    }
    return total - head_parameters();
  }
  int64_t head_parameters() const { return config_.vocab_size * config_.hidden_size; }

 private:
  // Seconds of each phase since a copy of the engine's clock was made.
  nlohmann::json Phases(const PhaseClock& before) const {
    const auto seconds = [&](Phase phase) {
      return engine_->phases().seconds(phase) - before.seconds(phase);
    };
    return {{"matrices", seconds(Phase::kMatrices)},
            {"attention", seconds(Phase::kAttention)},
            {"head", seconds(Phase::kHead)},
            {"sampling", seconds(Phase::kSampling)}};
  }

  const Workload workload_;
  const ModelConfig config_;
  std::unique_ptr<NativeEngine> engine_;
  WeightSnapshot snapshot_;
};

int Main(int argc, char** argv) {
  CommandLine app("how fast the native engine generates", "rollout_bench");
  app.RequireCommand();
  Workload workload;
  std::string directory;
  const auto add = [&](const char* name, const char* help, std::function<nlohmann::json()> run) {
    const Command command = app.AddCommand(name, help);
    command.Add("--model", workload.model, "T: 33.6 M parameters; M: 415 M").OneOf({"T", "M"});
    command.Add("--dtype", workload.dtype, "of the weights").OneOf({"bf16", "fp32", "int8"});
    command.Add("--threads", workload.threads).Range(1, 256);
    command.AddFlag("--aten", workload.aten, "compute with ATen");
    command.Add("--device", workload.device, "cpu, cuda or cuda:N");
    command.Add("--kernels", workload.kernels, "a set of CPU kernels, such as avx2");
    command.AddFlag("--no-prefix-cache", workload.no_prefix_cache);
    command.Add("--speculative", workload.speculative, "tokens to draft")
        .Range(int64_t{0}, kMaxDraftTokens);
    command.Add("--groups", workload.groups).Positive();
    command.Add("--samples", workload.samples).Positive();
    command.Add("--prompt", workload.prompt).Positive();
    command.Add("--generate", workload.generate).Positive();
    command.Add("--turns", workload.turns).Positive();
    command.AddFlag("--static", workload.is_static, "static batching");
    command.Add("--directory", directory, "for write").ExistingFolder();
    command.OnRun([run = std::move(run)] {
      std::printf("%s\n", run().dump().c_str());
      return 0;
    });
  };
  const auto add_engine = [&](const char* name, const char* help,
                              nlohmann::json (Bench::*measure)()) {
    add(name, help, [&workload, measure] {
      Bench bench(workload);
      nlohmann::json result = (bench.*measure)();
      result["multiplied_parameters"] = bench.multiplied_parameters();
      result["head_parameters"] = bench.head_parameters();
      return result;
    });
  };
  add_engine("decode", "groups of samples", &Bench::Decode);
  add_engine("prefill", "prompts only", &Bench::Prefill);
  add_engine("turns", "conversations", &Bench::Turns);
  add_engine("lengths", "responses of log-normal lengths", &Bench::Lengths);
  add_engine("swap", "weights that change under load", &Bench::Swap);
  add_engine("score", "log-probs of a prompt", &Bench::Score);
  add("ceilings", "the machine", [&] { return MeasureCeilings(workload.threads); });
  add("device", "the device that --device names",
      [&] { return MeasureDeviceCeilings(workload.device); });
  add("kernels", "every set of CPU kernels", [] { return MeasureKernels(); });
  add("products", "matrix products of groups x samples rows, ours and ATen's", [&] {
    return MeasureProducts(BenchModel(workload.model), workload.groups * workload.samples,
                           workload.threads);
  });
  add("write", "the model as a Hugging Face directory", [&] {
    const absl::Status written = WriteBenchModel(BenchModel(workload.model), directory);
    if (!written.ok()) Fail(Message(written));
    return nlohmann::json::object();
  });
  return app.Run(argc, argv);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
