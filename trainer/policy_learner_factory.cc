#include "trainer/policy_learner_factory.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/container_limits.h"
#include "base/memory_plan.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/job_kind.h"
#include "job/loss_setup.h"
#include "model/gpu.h"
#include "model/program_memory.h"
#include "model/torch_threads.h"
#include "trainer/learner/learner_memory.h"
#include "trainer/learner/microbatches.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/loop/trainer_setup.h"
#include "trainer/rank_process.h"

namespace freshet {
namespace {

// Whether this machine, and the GPU if the learner computes on one, has the memory for the job's
// trainer. INVALID_ARGUMENT: not even for what is certain; otherwise a shortage is logged. Errors
// of FindGpu.
absl::Status CheckTrainerMemory(const job::v1::JobSpec& spec, PolicyLearnerOptions learner,
                                bool with_other_ranks) {
  FRESHET_ASSIGN_OR_RETURN(const std::optional<Gpu> gpu, FindGpu(learner.device));
  learner.device = gpu.has_value() ? gpu->device : "cpu";
  if (!with_other_ranks) learner.holds_whole_state = true;  // when one joins later
  MemoryPlan host = PlanTrainer(spec, learner, LargestBatch(spec, /*longest_prompt=*/1));
  if (gpu.has_value()) {
    if (with_other_ranks) FRESHET_RETURN_IF_ERROR(CheckGpuOfEachRank(spec.trainer().ranks()));
    GpuMemoryPlan divided = DivideByPlace(host);
    FRESHET_RETURN_IF_ERROR(WarnOrFail(
        CheckMemory(StrCat("the trainer's GPU ", gpu->device), divided.gpu, gpu->total_bytes)));
    host = std::move(divided.host);
  }
  host.push_back(ProgramMemory());
  if (with_other_ranks) AddRanks(spec.trainer().ranks(), SendsShards(spec), host);
  return WarnOrFail(CheckMemory("the trainer", host, UsableMemory(ReadContainerLimits())));
}

// Before anything is loaded.
absl::Status CheckRanks(const job::v1::JobSpec& spec, const JoinedRanks* joined) {
  if (joined == nullptr || spec.trainer().ranks() <= joined->ranks()) return absl::OkStatus();
  return InvalidArgument("trainer.ranks: ", spec.trainer().ranks(), ", but the trainer has ",
                         joined->ranks(), "; raise its --ranks (in the chart, trainer.ranks)");
}

// Files for checkpoints, and how tokens are decoded.
void AddTextParts(const job::v1::JobSpec& spec, const ModelConfig& config,
                  std::shared_ptr<const Tokenizer> tokenizer, StartedLearner& started) {
  started.checkpoint_files = ModelTextFiles(config, *tokenizer, CheckpointDtype(spec));
  started.decode = [tokenizer = std::move(tokenizer)](const std::vector<int32_t>& ids) {
    return tokenizer->Decode(ids, /*skip_special=*/true);
  };
}

// A checkpoint has no weights of its own, so the model's are loaded whether there is one or not.
absl::StatusOr<StartedLearner> StartFrozenLearner(const LearnerStart& start) {
  FRESHET_ASSIGN_OR_RETURN(ModelSetup model, OpenModel(start.spec, start.roots));
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<FrozenLearner> learner,
                           MakeFrozenLearner(start.spec, model));
  StartedLearner started;
  started.entries = learner->entries();
  started.learner = std::move(learner);
  AddTextParts(start.spec, model.config, std::move(model.tokenizer), started);
  return started;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrozenLearner>> MakeFrozenLearner(const job::v1::JobSpec& spec,
                                                                 const ModelSetup& model) {
  return FrozenLearner::Create(model, static_cast<uint64_t>(spec.seed()),
                               spec.model().dtype() == "bf16");
}

int ProcessorsOfRanks(const job::v1::JobSpec& spec, bool on_other_hosts) {
  const ContainerLimits limits = ReadContainerLimits();
  // Without a limit, the machine's processors are those of other roles too.
  const int here = limits.cpus.has_value() ? UsableProcessors(limits) : 1;
  return here *
         (on_other_hosts ? static_cast<int>(std::max<int64_t>(spec.trainer().ranks(), 1)) : 1);
}

absl::StatusOr<LossSpec> LossOfJob(const job::v1::JobSpec& spec) {
  auto loss = ResolveJobLoss(spec);
  if (!std::holds_alternative<LossSpec>(loss)) return InvalidArgument("loss: contradictory keys");
  return std::get<LossSpec>(std::move(loss));
}

absl::Status LoadWeights(const LearnerStart& start, const ModelSetup& model, bool needs_reference,
                         PolicyLearner& learner) try {
  if (start.checkpoint != nullptr) {
    FRESHET_RETURN_IF_ERROR(
        learner.LoadCheckpoint(start.checkpoint->path, start.checkpoint->optimizer_steps));
    return needs_reference ? learner.LoadReference(start.first_checkpoint) : absl::OkStatus();
  }
  if (model.files != nullptr) {
    FRESHET_RETURN_IF_ERROR(learner.LoadModel(model.files));
  } else {
    learner.InitializeRandom(static_cast<uint64_t>(start.spec.seed()));
  }
  if (start.spec.warmup().has_sft()) {
    FRESHET_RETURN_IF_ERROR(RunSftWarmup(start.spec, *learner.options().tokenizer, start.rows,
                                         learner, start.progress));
  }
  if (needs_reference) learner.FreezeReference();
  return absl::OkStatus();
} catch (const std::exception& error) {  // of the GPU
  return TorchError(error);
}

absl::StatusOr<ModelBundle> PolicyLearnerFactory::Describe(const job::v1::JobSpec& spec,
                                                           const DataRoots& roots) {
  FRESHET_RETURN_IF_ERROR(CheckRanks(spec, joined_.get()));
  FRESHET_ASSIGN_OR_RETURN(const ModelSetup model, OpenModel(spec, roots));
  FRESHET_ASSIGN_OR_RETURN(const LossSpec loss, LossOfJob(spec));
  const bool on_other_hosts = joined_ != nullptr;
  FRESHET_RETURN_IF_ERROR(CheckTrainerMemory(
      spec, MakeLearnerOptions(spec, model.config, loss, ProcessorsOfRanks(spec, on_other_hosts)),
      /*with_other_ranks=*/!on_other_hosts));
  return MakeModelBundle(spec, model);
}

absl::StatusOr<StartedLearner> PolicyLearnerFactory::Start(const LearnerStart& start) {
  FRESHET_RETURN_IF_ERROR(CheckRanks(start.spec, joined_.get()));
  UseOneTorchThread();
  if (Generates(start.spec)) return StartFrozenLearner(start);
  const int processors = ProcessorsOfRanks(start.spec, joined_ != nullptr);
  FRESHET_ASSIGN_OR_RETURN(ModelSetup model, OpenModel(start.spec, start.roots));
  FRESHET_ASSIGN_OR_RETURN(const LossSpec resolved, LossOfJob(start.spec));
  PolicyLearnerOptions options = MakeLearnerOptions(start.spec, model.config, resolved, processors);
  const std::shared_ptr<const Tokenizer> tokenizer = std::move(model.tokenizer);
  options.tokenizer = tokenizer;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<PolicyLearner> learner,
                           PolicyLearner::Create(std::move(options), clock_));
  StartedLearner started;
  started.has_reference = resolved.NeedsReference();
  FRESHET_RETURN_IF_ERROR(LoadWeights(start, model, started.has_reference, *learner));
  started.entries = learner->WeightEntries();
  AddTextParts(start.spec, model.config, tokenizer, started);
  FRESHET_ASSIGN_OR_RETURN(started.learner,
                           MakeJobLearner(start.spec, std::move(learner), joined_, start.store));
  return started;
}

absl::Status PolicyLearnerFactory::UseRanks(std::shared_ptr<JoinedRanks> joined) {
  joined_ = std::move(joined);
  return absl::OkStatus();
}

absl::Status PolicyLearnerFactory::RunRank(UniqueFd socket, const StoreOpener& open_store) {
  return RunJoinedRank(std::move(socket), open_store);
}

}  // namespace freshet
