#include "local/job_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/str_cat.h"
#include "job/job_kind.h"
#include "model/kv_cache_size.h"
#include "model/parameter_layout.h"
#include "model/program_memory.h"
#include "rollout/engine/engine_memory.h"
#include "rollout/worker/rollout_setup.h"
#include "trainer/learner/learner_memory.h"
#include "trainer/learner/model_flops.h"
#include "trainer/loop/trainer_setup.h"

namespace freshet {
namespace {

// Of a GPU; the rest is its context and fragments.
constexpr double kUsableMemory = 0.9;

const std::vector<Hardware>& KnownHardware() {
  // Data sheets: memory, dense bf16 FLOP/s, bandwidth.
  static const std::vector<Hardware> known = {{"l40s", int64_t{48} << 30, 362e12, 0.864e12},
                                              {"a100", int64_t{80} << 30, 312e12, 2.04e12},
                                              {"h100", int64_t{80} << 30, 989e12, 3.35e12},
                                              {"h200", int64_t{141} << 30, 989e12, 4.8e12},
                                              {"b200", int64_t{180} << 30, 2250e12, 8.0e12}};
  return known;
}

// FLOPs of training on `prompts` trees of this shape.
double StepFlops(const ModelConfig& model, const BatchShape& shape, int64_t prompts) {
  PackTree tree;
  tree.prefix.resize(static_cast<size_t>(shape.prefix));
  tree.suffixes.resize(1, std::vector<int32_t>(static_cast<size_t>(shape.suffix)));
  const double one = TrainingFlops(model, {tree});
  tree.suffixes.push_back(tree.suffixes[0]);
  const double suffix = TrainingFlops(model, {tree}) - one;
  return static_cast<double>(prompts) * (one + static_cast<double>(shape.suffixes - 1) * suffix);
}

double TrainerTokensPerSecond(const JobSetup& setup, const PolicyLearnerOptions& options,
                              const BatchShape& batch, const Hardware& hardware) {
  // A training pass is three forward passes.
  double passes = 3;
  if (options.activation_checkpointing) passes += 1;
  if (options.loss.NeedsReference()) passes += 1;
  if (options.minibatches_per_step > 1 && options.loss.NeedsProximal()) passes += 1;
  const int64_t prompts = setup.spec.prompts_per_step();
  const double flops = StepFlops(options.model, batch, prompts) / 3 * passes;
  const double tokens = static_cast<double>(prompts) * static_cast<double>(batch.suffixes) *
                        static_cast<double>(batch.suffix);
  return tokens * hardware.flops / flops;
}

// A decode step reads the weights once, and the cache of every sample.
double RolloutTokensPerSecond(const JobSetup& setup, const NativeEngineOptions& options,
                              int64_t running, const Hardware& hardware) {
  const ModelConfig& model = setup.model.config;
  const int64_t context = setup.prompts.longest + setup.spec.rollout().max_new_tokens() / 2;
  std::vector<PackTree> with(1), without(1);
  with[0].prefix.resize(static_cast<size_t>(context) + 1);
  without[0].prefix.resize(static_cast<size_t>(std::max<int64_t>(context, 1)));
  const double flops = (TrainingFlops(model, with) - TrainingFlops(model, without)) / 3;
  const auto samples = static_cast<double>(std::min(running, options.max_sequences));
  const double cache = static_cast<double>(KvBlockBytes(model, options.bf16)) / kKvBlockTokens *
                       static_cast<double>(context);
  const double seconds =
      std::max(samples * flops / hardware.flops,
               (static_cast<double>(PackedWeightBytes(model, options)) + samples * cache) /
                   hardware.bytes_per_second);
  return samples / seconds;
}

int64_t DevicesFor(const MemoryPlan& plan, const Hardware& hardware) {
  double divided = 0, whole = 0;
  for (const MemoryItem& item : plan) {
    if (item.place == MemoryItem::Place::kHost) continue;
    (item.place == MemoryItem::Place::kDivided ? divided : whole) +=
        static_cast<double>(item.bytes);
  }
  const double room = kUsableMemory * static_cast<double>(hardware.memory_bytes) - whole;
  if (room <= 0) return 0;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(divided / room)));
}

MemoryPlan With(MemoryPlan plan, const MemoryPlan& more) {
  plan.insert(plan.end(), more.begin(), more.end());
  return plan;
}

}  // namespace

std::vector<std::string> HardwareNames() {
  std::vector<std::string> names;
  for (const Hardware& hardware : KnownHardware()) names.push_back(hardware.name);
  return names;
}

absl::StatusOr<Hardware> ParseHardware(const std::string& text) {
  for (const Hardware& hardware : KnownHardware()) {
    if (hardware.name == text) return hardware;
  }
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  std::array<double, 3> numbers = {};
  bool valid = parts.size() == numbers.size();
  for (size_t i = 0; valid && i < numbers.size(); ++i) {
    valid = absl::SimpleAtod(parts[i], &numbers[i]) && numbers[i] > 0 && numbers[i] < 1e9;
  }
  if (!valid) {
    return InvalidArgument("--hardware ", text, ": expected ", absl::StrJoin(HardwareNames(), ", "),
                           " or GFLOPS:GB_PER_SECOND:GB, such as 400:45:24");
  }
  return Hardware{text, static_cast<int64_t>(numbers[2] * 1e9), numbers[0] * 1e9, numbers[1] * 1e9};
}

JobPlan PlanJob(const JobSetup& setup, const ContainerLimits& limits, const Hardware* hardware,
                const GpuUse& local) {
  const job::v1::JobSpec& spec = setup.spec;
  const ModelConfig& model = setup.model.config;
  const BatchShape batch = LargestBatch(spec, setup.prompts.longest);
  PolicyLearnerOptions learner =
      MakeLearnerOptions(spec, model, setup.loss, UsableProcessors(limits));
  if (local.trainer) learner.device = "cuda";
  const NativeEngineOptions engine = MakeEngineOptions(spec, limits);
  const int64_t running =
      ProductOfSizes({spec.staleness().max() + 1, spec.prompts_per_step(), spec.group_size()});
  using Place = MemoryItem::Place;
  const MemoryPlan program = {ProgramMemory()};
  const MemoryPlan learns = PlanTrainer(spec, learner, batch);
  const bool native = spec.rollout().engine().empty() || spec.rollout().engine() == "native";
  const MemoryPlan generates =
      native ? PlanEngine(model, engine, running, spec.has_eval()) : MemoryPlan();
  const int64_t version = PublishedBytes(learner);
  const int64_t received = version * (spec.has_eval() ? 3 : 2);
  JobPlan plan;
  const MemoryPlan rank = With(program, learns);
  MemoryPlan ranks = rank;
  AddRanks(spec.trainer().ranks(), SendsShards(spec), ranks);
  // Of all ranks, whatever they divide.
  const int64_t snapshot =
      Generates(spec) ? 0 : kSnapshotBytes * MakeParameterLayout(model).num_elements;
  plan.trainer = {"trainer", ranks, snapshot};
  plan.rollout = {"rollout",
                  With(With(program, {{"received versions", received, Place::kHost}}), generates)};
  plan.local = {"local", {}, plan.trainer.checkpoint_copy_bytes};
  const auto add = [&](const MemoryPlan& part, bool on_gpu, int64_t of_ranks) {
    GpuMemoryPlan divided = on_gpu ? DivideByPlace(part) : GpuMemoryPlan{{}, part};
    AddRanks(of_ranks, /*shards=*/false, divided.host);  // other ranks have GPUs of their own
    plan.local_gpu = With(std::move(plan.local_gpu), divided.gpu);
    plan.local.memory = With(std::move(plan.local.memory), divided.host);
  };
  MemoryPlan in_process = rank;  // an engine in the same process needs no CUDA IPC copies
  std::erase_if(in_process, [](const MemoryItem& item) { return item.name == kGpuCopies; });
  add(in_process, local.trainer, spec.trainer().ranks());
  add(generates, local.rollout, /*of_ranks=*/1);
  if (spec.has_eval()) plan.local.memory.push_back({"evaluated version", version, Place::kHost});
  if (hardware == nullptr) return plan;
  if (!Generates(spec)) {
    plan.trainer.tokens_per_second = TrainerTokensPerSecond(setup, learner, batch, *hardware);
  }
  plan.trainer.devices = DevicesFor(plan.trainer.memory, *hardware);
  if (!native) return plan;
  plan.rollout.tokens_per_second = RolloutTokensPerSecond(setup, engine, running, *hardware);
  plan.rollout.devices = DevicesFor(plan.rollout.memory, *hardware);
  return plan;
}

}  // namespace freshet
