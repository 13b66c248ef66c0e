#include <memory>

#include "services/reward/service/reward_process.h"
#include "tests/simulation/history_store.h"

int main(int argc, char** argv) {
  using namespace freshet;
  const std::unique_ptr<History> history = History::FromEnvironment("reward");
  return RunRewardProcess(argc, argv, HistoryStore::Wrap(history.get()));
}
