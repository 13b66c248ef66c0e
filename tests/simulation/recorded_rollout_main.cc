#include <memory>

#include "base/status_macros.h"
#include "collective/open_backend.h"
#include "rollout/service/native_engine_factory.h"
#include "rollout/service/rollout_process.h"
#include "tests/simulation/history_store.h"
#include "tests/simulation/recorded_engine.h"

int main(int argc, char** argv) {
  using namespace freshet;
  const std::unique_ptr<History> history = History::FromEnvironment("rollout");
  if (history == nullptr) return RunRolloutProcess(argc, argv, MakeNativeEngine, OpenBackend);
  return RunRolloutProcess(
      argc, argv,
      [&](const job::v1::JobSpec& spec,
          const ModelConfig& model) -> absl::StatusOr<std::unique_ptr<InferenceEngine>> {
        FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<InferenceEngine> engine,
                                 MakeNativeEngine(spec, model));
        return std::make_unique<RecordedEngine>(std::move(engine), *history);
      },
      OpenBackend, HistoryStore::Wrap(history.get()));
}
