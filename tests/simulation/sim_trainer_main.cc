#include <cstdlib>
#include <memory>
#include <string>

#include "services/base/str_cat.h"
#include "tests/simulation/history_store.h"
#include "tests/simulation/simulated_learner.h"
#include "trainer/service/trainer_process.h"

// A trainer process whose model only takes time. Environment: FRESHET_SIM_HISTORY, folder of its
// history (none without it); FRESHET_SIM_STEP_SECONDS, that a step takes.
int main(int argc, char** argv) {
  using namespace freshet;
  SimulatedLearnerOptions options;
  if (const char* text = std::getenv("FRESHET_SIM_STEP_SECONDS"); text != nullptr) {
    options.step_seconds = std::atof(text);
  }
  std::unique_ptr<History> history;
  TrainerHooks hooks;
  if (const char* folder = std::getenv("FRESHET_SIM_HISTORY"); folder != nullptr) {
    history = std::make_unique<History>(folder, "trainer");
    hooks.wrap_store = [&](std::unique_ptr<TrajectoryStore> store) {
      return std::make_unique<HistoryStore>(std::move(store), *history);
    };
    options.on_step = [&](int64_t step, const std::vector<TrainGroup>& groups) {
      std::string samples;
      for (const TrainGroup& group : groups) {
        for (const TrainSample& sample : group.samples) {
          samples += StrCat(samples.empty() ? "" : ",", R"([")", sample.sample.uid, R"(",")",
                            ResponseHash(*sample.sample.response), R"("])");
        }
      }
      history->Add(StrCat(R"("event":"train","step":)", step, R"(,"samples":[)", samples, "]"));
    };
  }
  SimulatedLearnerFactory learners(options);
  return RunTrainerProcess(argc, argv, learners, hooks);
}
