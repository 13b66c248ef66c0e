#include <memory>
#include <string_view>

#include "base/clock.h"
#include "collective/open_backend.h"
#include "tests/simulation/history_store.h"
#include "tests/simulation/recorded_learner.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/rank_process.h"
#include "trainer/service/trainer_process.h"

int main(int argc, char** argv) {
  using namespace freshet;
  if (argc >= 2 && std::string_view(argv[1]) == kRankCommand) {
    return RunRankProcess(argc - 1, argv + 1);
  }
  PolicyLearnerFactory learners(SystemClock::Get());
  const std::unique_ptr<History> history = History::FromEnvironment("trainer");
  if (history == nullptr) return RunTrainerProcess(argc, argv, learners, OpenBackend);
  RecordedLearnerFactory recorded(learners, *history);
  return RunTrainerProcess(argc, argv, recorded, OpenBackend, HistoryStore::Wrap(history.get()));
}
