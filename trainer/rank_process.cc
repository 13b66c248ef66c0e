#include "trainer/rank_process.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/open_backend.h"
#include "model/device.h"
#include "model/model_config.h"
#include "model/torch.h"
#include "model/torch_threads.h"
#include "services/worker/worker_flags.h"
#include "services/worker/worker_process.h"
#include "trainer/learner/microbatches.h"
#include "trainer/loop/trainer_setup.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/ranks/child_ranks.h"
#include "trainer/ranks/data_parallel_learner.h"
#include "trainer/ranks/joined_rank_starter.h"
#include "trainer/ranks/rank_follower.h"

namespace freshet {
namespace {

using trainer::v1::RankStart;

constexpr char kGloo[] = "gloo";
constexpr char kNccl[] = "nccl";

absl::StatusOr<std::unique_ptr<PolicyLearner>> MakeRankLearner(const RankStart& start) {
  FRESHET_ASSIGN_OR_RETURN(const ModelConfig model,
                           ParseModelConfig(start.model_config(), "config.json"));
  FRESHET_ASSIGN_OR_RETURN(const LossSpec loss, LossOfJob(start.spec()));
  PolicyLearnerOptions options = MakeLearnerOptions(
      start.spec(), model, loss, ProcessorsOfRanks(start.spec(), /*on_other_hosts=*/true));
  if (start.threads() > 0) options.threads = start.threads();
  if (!start.device().empty()) options.device = start.device();
  return PolicyLearner::Create(std::move(options), SystemClock::Get());
}

// Whether this process can still compute on its GPU; also OK if that has no memory left.
absl::Status TryGpu() try {
  at::zeros({1}, at::TensorOptions(at::kCUDA)).item<float>();
  return absl::OkStatus();
} catch (const std::exception& error) {
  absl::Status failed = TorchError(error);
  return absl::IsResourceExhausted(failed) ? absl::OkStatus() : failed;
}

// Ranks on GPUs train over NCCL. Everything else passes over Gloo on this machine's loopback
// interface, or through the links of ranks on other hosts.
absl::StatusOr<RankLinkOptions> LinkOptions(const job::v1::JobSpec& spec,
                                            const PolicyLearner& learner, bool on_other_hosts) {
  RankLinkOptions options;
  *options.start.mutable_spec() = spec;
  options.start.set_model_config(learner.options().model.ToJson());
  options.start.set_device(learner.on_gpu() ? "cuda" : "cpu");
  options.divides_state = learner.options().sharding != Sharding::kNone;
  if (!on_other_hosts) {
    FRESHET_ASSIGN_OR_RETURN(options.background_backend, OpenBackend(kGloo));
    options.backend = options.background_backend;
    options.start.set_backend(kGloo);
    options.start.set_background_backend(kGloo);
  }
  if (learner.on_gpu()) {
    auto nccl = OpenBackend(kNccl);
    if (!nccl.ok()) {
      return FailedPrecondition("trainer.ranks: ranks on GPUs need NCCL: ", Message(nccl.status()));
    }
    options.backend = *std::move(nccl);
    options.start.set_backend(kNccl);
  }
  // Masters, gradients, moments and the rounded weights.
  options.state_bytes = learner.num_parameters() * (4 * 4 + 2);
  return options;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Learner>> MakeJobLearner(const job::v1::JobSpec& spec,
                                                        std::shared_ptr<PolicyLearner> learner,
                                                        std::shared_ptr<JoinedRanks> joined,
                                                        const RankStore& store) {
  const auto ranks = static_cast<int>(spec.trainer().ranks());
  if (ranks <= 1) return learner;
  FRESHET_ASSIGN_OR_RETURN(RankLinkOptions options,
                           LinkOptions(spec, *learner, /*on_other_hosts=*/joined != nullptr));
  options.start.set_job(store.job);
  std::unique_ptr<RankStarter> starter;
  if (joined == nullptr) {
    options.start.set_threads(learner->options().threads);
    std::vector<std::string> command = {"/proc/self/exe", kRankCommand};
    command.insert(command.end(), store.arguments.begin(), store.arguments.end());
    starter = std::make_unique<ChildRankStarter>(std::move(command), std::move(options),
                                                 /*gpu_each=*/learner->on_gpu());
  } else {
    std::optional<absl::Duration> wait;
    if (spec.trainer().has_rank_wait_ms()) {
      wait = absl::Milliseconds(spec.trainer().rank_wait_ms());
    }
    starter = std::make_unique<JoinedRankStarter>(std::move(joined), std::move(options), wait);
  }
  return std::make_shared<DataParallelLearner>(std::move(learner), std::move(starter), ranks,
                                               SendsShards(spec));
}

absl::Status CheckGpuOfEachRank(int64_t ranks) {
  // Creates no CUDA context, which would take memory of the rank's GPU.
  const absl::Status last = OpenDevice(StrCat("cuda:", std::max<int64_t>(ranks, 1) - 1)).status();
  return last.ok() ? last
                   : InvalidArgument("trainer.ranks: each of ", ranks,
                                     " ranks needs a GPU: ", Message(last));
}

absl::Status RunJoinedRank(UniqueFd socket, const StoreOpener& open_store) {
  UseOneTorchThread();
  MessageSocket messages(std::move(socket));
  RankParts parts;
  bool on_gpu = false;
  parts.make_learner = [&on_gpu](const RankStart& start) {
    auto learner = MakeRankLearner(start);
    on_gpu = learner.ok() && (*learner)->on_gpu();
    return learner;
  };
  parts.open_backend = OpenBackend;
  parts.open_store = open_store;
  absl::Status status = RunRank(messages, parts);
  if (status.ok() || !on_gpu) return status;
  // After some errors CUDA works again only in another process.
  if (const absl::Status gpu = TryGpu(); !gpu.ok()) {
    FRESHET_LOG(Error) << "event=gpu_lost reason=" << LogQuoted(Message(gpu))
                       << " after=" << LogQuoted(Message(status));
    ::_exit(kExitInternal);
  }
  return status;
}

int RunRankProcess(int argc, const char* const* argv) {
  UseOneTorchThread();
  CommandLine app("a rank that its trainer starts", kRankCommand);
  runtime::DatastoreFlags datastore;
  double time_scale = 1;
  runtime::AddDatastoreFlags(app, datastore);
  runtime::AddTimeScaleFlag(app, time_scale);
  if (const std::optional<int> code = app.Parse(argc, argv)) return *code;
  absl::StatusOr<StoreOpener> open_store = MakeStoreOpener(datastore, time_scale);
  if (!open_store.ok()) {
    FRESHET_LOG(Error) << "event=rank_failed reason=" << LogQuoted(Message(open_store.status()));
    return kExitCommandLine;
  }
  MessageSocket socket{UniqueFd(STDIN_FILENO)};
  RankParts parts;
  parts.make_learner = MakeRankLearner;
  parts.open_backend = OpenBackend;
  parts.open_store = *std::move(open_store);
  parts.on_orphaned = [] { ::_exit(kExitInternal); };
  const absl::Status status = RunRank(socket, parts);
  if (status.ok()) return kExitDone;
  FRESHET_LOG(Error) << "event=rank_failed reason=" << LogQuoted(Message(status));
  return kExitInternal;
}

}  // namespace freshet
