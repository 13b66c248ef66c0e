#ifndef FRESHET_LOCAL_LOCAL_RUN_OPTIONS_H_
#define FRESHET_LOCAL_LOCAL_RUN_OPTIONS_H_

#include <functional>
#include <memory>
#include <string>

#include "datastore/memory/in_memory_call_budget.h"
#include "local/local_status.h"
#include "local/resume_point.h"
#include "local/run_recorder.h"

namespace freshet {

struct LocalRunOptions {
  ResumePoint resume;             // of the folder
  RowSink rows;                   // rows of --json; may be empty
  int metrics_port = 0;           // on the loopback address; 0: no metrics server
  LocalStatus* status = nullptr;  // updated for the status page; may be null; outlives the run
  // Runs with copies of the options share it: one limit holds for all runs of a command.
  std::shared_ptr<InMemoryCallBudget> calls = std::make_shared<InMemoryCallBudget>();
  // The first policy of the run's team that has ended, or "". Null without a team.
  std::function<std::string()> ended_policy = nullptr;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_RUN_OPTIONS_H_
