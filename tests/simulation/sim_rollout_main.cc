#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/str_cat.h"
#include "rollout/service/rollout_process.h"
#include "tests/simulation/failing_engine.h"
#include "tests/simulation/history_store.h"
#include "tests/simulation/simulated_engine.h"

// A rollout worker with a simulated engine. Environment variables: FRESHET_SIM_HISTORY, folder for
// the history (unset: none); FRESHET_SIM_ENGINE, "slots base_ms per_sequence_ms scale median
// sigma", all or none; FRESHET_SIM_FAULT, see failing_engine.h; FRESHET_SIM_POLL_MS, longest wait
// in one Poll; FRESHET_SIM_USAGE, folder for a file PID with the CPU seconds of the simulation.
int main(int argc, char** argv) {
  using namespace freshet;
  SimulatedEngineOptions options;
  if (const char* text = std::getenv("FRESHET_SIM_ENGINE"); text != nullptr) {
    std::istringstream(text) >> options.slots >> options.base_ms >> options.per_sequence_ms >>
        options.time_scale >> options.median_tokens >> options.sigma;
  }
  if (const char* text = std::getenv("FRESHET_SIM_POLL_MS"); text != nullptr) {
    options.longest_poll = absl::Milliseconds(std::atof(text));
  }
  options.logprob = -1 - 1e-3F * static_cast<float>(::getpid() % 1000);
  if (const char* folder = std::getenv("FRESHET_SIM_USAGE"); folder != nullptr) {
    options.usage_file = StrCat(folder, "/", ::getpid());
  }
  const std::unique_ptr<History> history = History::FromEnvironment("rollout");
  return RunRolloutProcess(
      argc, argv,
      [&](const job::v1::JobSpec&,
          const ModelConfig&) -> absl::StatusOr<std::unique_ptr<InferenceEngine>> {
        auto engine = std::make_unique<SimulatedEngine>(options, SystemClock::Get());
        if (history != nullptr) {
          engine->OnLoad([&](const WeightManifest& manifest) { history->AddLoad(manifest); });
        }
        const char* faults = std::getenv("FRESHET_SIM_FAULT");
        if (faults == nullptr) return engine;
        return std::make_unique<FailingEngine>(std::move(engine), EngineFaults::Parse(faults));
      },
      {}, HistoryStore::Wrap(history.get()));
}
