#include <cstdlib>
#include <memory>
#include <string>

#include "tests/simulation/history_store.h"
#include "tests/simulation/simulated_learner.h"
#include "trainer/service/trainer_process.h"

// A trainer with a simulated model. Environment variables: FRESHET_SIM_HISTORY, folder for the
// history (unset: none); FRESHET_SIM_STEP_SECONDS, duration of a step.
int main(int argc, char** argv) {
  using namespace freshet;
  SimulatedLearnerOptions options;
  if (const char* text = std::getenv("FRESHET_SIM_STEP_SECONDS"); text != nullptr) {
    options.step_seconds = std::atof(text);
  }
  const std::unique_ptr<History> history = History::FromEnvironment("trainer");
  if (history != nullptr) {
    options.on_step = [&](int64_t step, const std::vector<TrainGroup>& groups) {
      history->AddTrain(step, groups);
    };
  }
  SimulatedLearnerFactory learners(options);
  return RunTrainerProcess(argc, argv, learners, {}, HistoryStore::Wrap(history.get()));
}
