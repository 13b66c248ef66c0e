#include "trainer/rank_process.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

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
#include "trainer/ranks/joined_rank_starter.h"
#include "trainer/ranks/rank_follower.h"

namespace freshet {
namespace {

using trainer::v1::RankStart;

absl::StatusOr<std::unique_ptr<PolicyLearner>> MakeRankLearner(const RankStart& start) {
  FRESHET_ASSIGN_OR_RETURN(const ModelConfig model,
                           ParseModelConfig(start.model_config(), "config.json"));
  FRESHET_ASSIGN_OR_RETURN(const LossSpec loss, LossOfJob(start.spec()));
  PolicyLearnerOptions options = MakeLearnerOptions(
      start.spec(), model, loss, ProcessorsOfRanks(start.spec(), /*on_other_hosts=*/true));
  if (start.threads() > 0) options.threads = start.threads();
  return PolicyLearner::Create(std::move(options), SystemClock::Get());
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRank(const RankStart& start,
                                                          const std::string& file) {
  GlooOptions options;
  options.rank = start.rank();
  options.size = start.ranks();
  options.rendezvous_file = file;
  return ConnectGloo(options);
}

RankLinkOptions LinkOptions(const job::v1::JobSpec& spec, const PolicyLearner& learner) {
  RankLinkOptions options;
  *options.start.mutable_spec() = spec;
  options.start.set_model_config(learner.options().model.ToJson());
  // Masters, gradients, moments and the rounded weights.
  options.state_bytes = learner.num_parameters() * (4 * 4 + 2);
  return options;
}

}  // namespace

std::shared_ptr<Learner> MakeJobLearner(const job::v1::JobSpec& spec,
                                        std::shared_ptr<PolicyLearner> learner,
                                        std::shared_ptr<JoinedRanks> joined) {
  const auto ranks = static_cast<int>(spec.trainer().ranks());
  if (ranks <= 1) return learner;
  RankLinkOptions options = LinkOptions(spec, *learner);
  std::unique_ptr<RankStarter> starter;
  if (joined == nullptr) {
    options.start.set_threads(learner->options().threads);
    starter = std::make_unique<ChildRankStarter>(
        std::vector<std::string>{"/proc/self/exe", kRankCommand}, std::move(options));
  } else {
    starter = std::make_unique<JoinedRankStarter>(std::move(joined), std::move(options));
  }
  return std::make_shared<DataParallelLearner>(std::move(learner), std::move(starter), ranks);
}

absl::Status RunJoinedRank(UniqueFd socket) {
  UseOneTorchThread();
  MessageSocket messages(std::move(socket));
  RankParts parts;
  parts.make_learner = MakeRankLearner;
  parts.connect = [](const RankStart&, const std::string&) {
    return InvalidArgument("a rank on another host cannot use a rendezvous file");
  };
  return RunRank(messages, parts);
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
