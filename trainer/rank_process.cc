#include "trainer/rank_process.h"

#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/gloo_communicator.h"
#include "model/model_config.h"
#include "model/torch_threads.h"
#include "trainer/loop/trainer_setup.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/ranks/child_ranks.h"
#include "trainer/ranks/data_parallel_learner.h"
#include "trainer/ranks/rank_follower.h"

namespace freshet {
namespace {

using trainer::v1::RankStart;

absl::StatusOr<std::unique_ptr<PolicyLearner>> MakeRankLearner(const RankStart& start) {
  FRESHET_ASSIGN_OR_RETURN(const ModelConfig model,
                           ParseModelConfig(start.model_config(), "config.json"));
  FRESHET_ASSIGN_OR_RETURN(const LossSpec loss, LossOfJob(start.spec()));
  PolicyLearnerOptions options = MakeLearnerOptions(start.spec(), model, loss);
  options.threads = start.threads();
  return PolicyLearner::Create(std::move(options), SystemClock::Get());
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRank(const RankStart& start) {
  GlooOptions options;
  options.rank = start.rank();
  options.size = start.ranks();
  options.rendezvous_file = start.rendezvous_file();
  return ConnectGloo(options);
}

}  // namespace

std::shared_ptr<Learner> MakeJobLearner(const job::v1::JobSpec& spec,
                                        std::shared_ptr<PolicyLearner> learner) {
  const auto ranks = static_cast<int>(spec.trainer().ranks());
  if (ranks <= 1) return learner;
  ChildRankOptions options;
  options.argv = {"/proc/self/exe", kRankCommand};
  *options.start.mutable_spec() = spec;
  options.start.set_model_config(learner->options().model.ToJson());
  options.start.set_threads(learner->threads());
  return std::make_shared<DataParallelLearner>(
      std::move(learner), std::make_unique<ChildRankStarter>(std::move(options)), ranks);
}

int RunRankProcess() {
  UseOneTorchThread();
  MessageSocket socket{UniqueFd(STDIN_FILENO)};
  RankParts parts;
  parts.make_learner = MakeRankLearner;
  parts.connect = ConnectRank;
  parts.on_orphaned = [] { ::_exit(kExitInternal); };
  const absl::Status status = RunRank(socket, parts);
  if (status.ok()) return kExitDone;
  FRESHET_LOG(Error) << "event=rank_failed reason=" << LogQuoted(Message(status));
  return kExitInternal;
}

}  // namespace freshet
