// Measures the native engine on a random model, one workload per run. bench/rollout.py runs them in
// alternating order and prints the table.
//
//   rollout_bench decode|prefill|turns|lengths|swap|ceilings|kernels [--model T|M] [--threads N]
//   [...]
//
// Prints one JSON object.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/random.h"
#include "base/str_cat.h"
#include "model/dtype.h"
#include "model/parameter_layout.h"
#include "model/torch_threads.h"
#include "nlohmann/json.hpp"
#include "rollout/engine/kernels/kernel_choice.h"
#include "rollout/engine/kernels/matrix.h"
#include "rollout/engine/native_engine.h"

namespace freshet {
namespace {

struct Workload {
  std::string model = "T";
  std::string dtype = "bf16";
  int threads = 1;
  bool aten = false;
  std::string kernels;  // empty: chosen as in a job
  bool no_prefix_cache = false;
  int groups = 8;
  int samples = 8;
  int prompt = 128;
  int generate = 128;
  int turns = 8;
  bool is_static = false;  // wait for a whole batch before the next one
};

ModelConfig Model(const std::string& name) {
  ModelConfig config;
  const bool small = name == "T";
  config.vocab_size = small ? 8192 : 32000;
  config.hidden_size = small ? 512 : 896;
  config.num_hidden_layers = small ? 8 : 24;
  config.num_attention_heads = small ? 8 : 14;
  config.num_key_value_heads = small ? 4 : 2;
  config.intermediate_size = small ? 1536 : 4864;
  config.max_position_embeddings = 4096;
  config.DeriveDefaults();
  return config;
}

double Seconds(absl::Time start) { return absl::ToDoubleSeconds(SystemClock::Get().Now() - start); }

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "rollout_bench: %s\n", message.c_str());
  std::exit(1);
}

class Bench {
 public:
  explicit Bench(const Workload& workload) : workload_(workload), config_(Model(workload.model)) {
    UseOneTorchThread();
    NativeEngineOptions options;
    options.bf16 = workload.dtype == "bf16";
    options.threads = workload.threads;
    options.aten = workload.aten;
    for (int set = 0; set <= static_cast<int>(BestCpuKernels()); ++set) {
      const auto kernels = static_cast<CpuKernels>(set);
      if (workload.kernels == CpuKernelsName(kernels)) options.kernels = kernels;
    }
    if (!workload.kernels.empty() && !options.kernels.has_value()) {
      Fail("this CPU has no kernels " + workload.kernels);
    }
    options.prefix_cache = !workload.no_prefix_cache;
    auto engine = NativeEngine::Create(config_, options);
    if (!engine.ok()) Fail(Message(engine.status()));
    engine_ = *std::move(engine);
    const ParameterLayout layout = MakeParameterLayout(config_);
    const Dtype dtype = options.bf16 ? Dtype::kBf16 : Dtype::kF32;
    std::vector<std::byte> bytes(static_cast<size_t>(layout.num_elements) * DtypeBytes(dtype));
    for (int64_t i = 0; i < layout.num_elements; ++i) {
      const auto bits = static_cast<uint32_t>(i) * 2654435761U;
      const float weight = 0.04F * (static_cast<float>(bits >> 8) / 16777216.0F - 0.5F);
      if (dtype == Dtype::kBf16) {
        reinterpret_cast<uint16_t*>(bytes.data())[i] = RoundToBf16(weight);
      } else {
        reinterpret_cast<float*>(bytes.data())[i] = weight;
      }
    }
    snapshot_.bytes = MakeWeightBytes(std::move(bytes));
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

  // Groups of samples, all at once: prompts first, then one token a step.
  nlohmann::json Decode() {
    for (int g = 0; g < workload_.groups; ++g) {
      Submit(Request(g, workload_.prompt, workload_.samples, workload_.generate));
    }
    const absl::Time start = SystemClock::Get().Now();
    while (engine_->stats().tokens_generated < workload_.groups * workload_.samples) Poll();
    const double prefill = Seconds(start);
    const int64_t first = engine_->stats().tokens_generated;
    const absl::Time decoding = SystemClock::Get().Now();
    Drain();
    return {{"prefill_seconds", prefill},
            {"decode_seconds", Seconds(decoding)},
            {"decode_tokens", engine_->stats().tokens_generated - first},
            {"seconds", Seconds(start)},
            {"tokens", engine_->stats().tokens_generated}};
  }

  nlohmann::json Prefill() {
    for (int g = 0; g < workload_.groups; ++g) Submit(Request(g, workload_.prompt, 1, 1));
    const absl::Time start = SystemClock::Get().Now();
    Drain();
    return {{"seconds", Seconds(start)}, {"tokens", workload_.groups * workload_.prompt}};
  }

  // Conversations: every turn appends an observation of `prompt` tokens and generates.
  nlohmann::json Turns() {
    std::vector<Response> responses(static_cast<size_t>(workload_.groups));
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
            {"reused", engine_->stats().tokens_reused}};
  }

  // Log-normal response lengths. Continuous batching fills a place as soon as it is free.
  nlohmann::json Lengths() {
    const int slots = workload_.groups;
    std::deque<GenerationRequest> waiting;
    int64_t longest_tokens = 0;
    for (int i = 0; i < slots * 6; ++i) {
      const double u1 = 1.0 - ToUniform(RandomBits(3, static_cast<uint64_t>(i), 0));
      const double u2 = ToUniform(RandomBits(3, static_cast<uint64_t>(i), 1));
      const double normal = std::sqrt(-2.0 * std::log(u1)) * std::cos(6.283185307179586 * u2);
      const int length =
          std::clamp(static_cast<int>(workload_.generate * std::exp(normal)), 1, 2048);
      waiting.push_back(Request(i, workload_.prompt, 1, length));
      longest_tokens += length;
    }
    const absl::Time start = SystemClock::Get().Now();
    int64_t steps = 0;
    while (!waiting.empty() || !engine_->Idle()) {
      const bool admit = !workload_.is_static || engine_->Idle();
      while (admit && !waiting.empty() && engine_->stats().running_sequences < slots) {
        Submit(std::move(waiting.front()));
        waiting.pop_front();
      }
      Poll();
      ++steps;
    }
    return {{"seconds", Seconds(start)},
            {"tokens", engine_->stats().tokens_generated},
            {"steps", steps},
            {"least_steps", (longest_tokens + slots - 1) / slots}};
  }

  // The longest step with a swap of weights in it, and the median of the others.
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

  int64_t parameters() const { return MakeParameterLayout(config_).num_parameters; }

 private:
  const Workload workload_;
  const ModelConfig config_;
  std::unique_ptr<NativeEngine> engine_;
  WeightSnapshot snapshot_;
};

// The machine's ceilings: our product kernel on operands in the L2 cache, and a read of memory.
nlohmann::json Ceilings(const Workload& workload) {
  ThreadPool pool(workload.threads);
  const MatrixFormat format =
      workload.dtype == "bf16" ? MatrixFormat::kBfloat16 : MatrixFormat::kFloat32;
  constexpr int64_t kSize = 512;
  const std::vector<float> numbers(kSize * kSize, 0.5F);
  const PackedMatrix matrix(numbers.data(), kSize, kSize, format, pool);
  Activations x(format, kSize);
  x.Resize(240);
  for (int64_t i = 0; i < 240; ++i) x.Store(i, numbers.data());
  std::vector<float> out(240 * kSize);
  const CpuKernels kernels = KernelsOfThisCpu(format, /*deterministic=*/false);
  double best = 1e9;
  for (int round = 0; round < 200; ++round) {
    const absl::Time start = SystemClock::Get().Now();
    Multiply(x, 240, matrix, {out.data(), kSize}, kernels, pool);
    best = std::min(best, Seconds(start));
  }
  const int64_t bytes = int64_t{1} << 30;
  const AlignedBytes memory = AllocateAligned(bytes);
  std::memset(memory.get(), 1, static_cast<size_t>(bytes));
  double read = 1e9;
  for (int round = 0; round < 5; ++round) {
    constexpr int64_t kParts = 64;
    std::vector<uint64_t> sums(kParts);
    const absl::Time start = SystemClock::Get().Now();
    pool.For(kParts, [&](int64_t part, int) {
      const auto* words = reinterpret_cast<const uint64_t*>(memory.get() + part * (bytes / kParts));
      uint64_t lanes[32] = {};
      for (int64_t i = 0; i < bytes / kParts / 8; i += 32) {
        for (int64_t l = 0; l < 32; ++l) lanes[l] += words[i + l];
      }
      for (const uint64_t lane : lanes) sums[static_cast<size_t>(part)] += lane;
    });
    read = std::min(read, Seconds(start));
    if (sums[0] == 0) Fail("memory is not set");
  }
  return {{"flops", 2.0 * 240 * kSize * kSize / best},
          {"bytes_per_second", static_cast<double>(bytes) / read},
          {"kernels", CpuKernelsName(kernels)}};
}

// Every set of product kernels that this CPU has, on one thread, and which one is chosen.
nlohmann::json Kernels(const Workload&) {
  const std::vector<int64_t> rows = {1, 8, 64, 512};
  nlohmann::json result = {{"rows", rows}};
  for (const MatrixFormat format :
       {MatrixFormat::kFloat32, MatrixFormat::kBfloat16, MatrixFormat::kInt8}) {
    std::vector<CpuKernels> sets = KernelSets(format, BestCpuKernels());
    if (sets.front() != CpuKernels::kPortable) sets.insert(sets.begin(), CpuKernels::kPortable);
    nlohmann::json& table = result[MatrixFormatName(format)];
    for (const auto& candidate : ExamineKernels(format, sets, rows, absl::Seconds(3))) {
      table["gflops"][CpuKernelsName(candidate.kernels)] = candidate.gflops;
    }
    table["chosen"] = CpuKernelsName(KernelsOfThisCpu(format, /*deterministic=*/false));
  }
  return result;
}

int Main(int argc, char** argv) {
  CommandLine app("how fast the native engine generates", "rollout_bench");
  app.RequireCommand();
  Workload workload;
  const auto add = [&](const char* name, const char* help, nlohmann::json (Bench::*run)(),
                       nlohmann::json (*machine)(const Workload&) = nullptr) {
    const Command command = app.AddCommand(name, help);
    command.Add("--model", workload.model, "T: 33.6 M parameters; M: 415 M");
    command.Add("--dtype", workload.dtype, "bf16 or fp32");
    command.Add("--threads", workload.threads).Range(1, 256);
    command.AddFlag("--aten", workload.aten, "compute with ATen");
    command.Add("--kernels", workload.kernels, "a set of CPU kernels, such as avx2");
    command.AddFlag("--no-prefix-cache", workload.no_prefix_cache);
    command.Add("--groups", workload.groups).Positive();
    command.Add("--samples", workload.samples).Positive();
    command.Add("--prompt", workload.prompt).Positive();
    command.Add("--generate", workload.generate).Positive();
    command.Add("--turns", workload.turns).Positive();
    command.AddFlag("--static", workload.is_static, "static batching");
    command.OnRun([&workload, run, machine] {
      if (run == nullptr) {
        std::printf("%s\n", machine(workload).dump().c_str());
        return 0;
      }
      Bench bench(workload);
      nlohmann::json result = (bench.*run)();
      result["parameters"] = bench.parameters();
      std::printf("%s\n", result.dump().c_str());
      return 0;
    });
  };
  add("decode", "groups of samples", &Bench::Decode);
  add("prefill", "prompts only", &Bench::Prefill);
  add("turns", "conversations", &Bench::Turns);
  add("lengths", "responses of log-normal lengths", &Bench::Lengths);
  add("swap", "weights that change under load", &Bench::Swap);
  add("ceilings", "the machine", nullptr, &Ceilings);
  add("kernels", "every set of CPU kernels", nullptr, &Kernels);
  return app.Run(argc, argv);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
