#include <memory>

#include "base/clock.h"
#include "tests/simulation/history_store.h"
#include "tests/simulation/recorded_learner.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/service/trainer_process.h"

int main(int argc, char** argv) {
  using namespace freshet;
  PolicyLearnerFactory learners(SystemClock::Get());
  const std::unique_ptr<History> history = History::FromEnvironment("trainer");
  if (history == nullptr) return RunTrainerProcess(argc, argv, learners);
  RecordedLearnerFactory recorded(learners, *history);
  return RunTrainerProcess(argc, argv, recorded, HistoryStore::Wrap(history.get()));
}
