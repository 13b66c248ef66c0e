#include <memory>

#include "controller/controller_process.h"
#include "tests/simulation/history_records.h"
#include "tests/simulation/history_store.h"

int main(int argc, char** argv) {
  using namespace freshet;
  const std::unique_ptr<History> history = History::FromEnvironment("controller");
  ControllerHooks hooks;
  hooks.wrap_store = HistoryStore::Wrap(history.get());
  if (history != nullptr) {
    hooks.wrap_records = [&](JobRecordStore& records) {
      return std::make_unique<HistoryRecords>(records, *history);
    };
  }
  return RunControllerProcess(argc, argv, hooks);
}
