#include "cli/commands/plan_command.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/format/text_table.h"
#include "job/job_parser.h"
#include "local/job_plan.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

struct PlanFlags {
  std::string job;
  std::vector<std::string> overrides;
  std::string hardware;
  bool json = false;
};

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%10.1f", static_cast<double>(bytes) / (1 << 20));
}

nlohmann::ordered_json ToJson(const ProcessPlan& plan, bool has_hardware) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (const MemoryItem& item : plan.memory) {
    items.push_back({{"name", item.name}, {"bytes", item.bytes}});
  }
  nlohmann::ordered_json json = {{"bytes", TotalBytes(plan.memory)},
                                 {"checkpoint_copy_bytes", plan.checkpoint_copy_bytes},
                                 {"items", std::move(items)}};
  if (has_hardware && plan.process != "local") {
    json["tokens_per_second"] = plan.tokens_per_second;
    json["devices"] = plan.devices > 0 ? nlohmann::ordered_json(plan.devices) : nullptr;
  }
  return json;
}

void PrintText(const JobPlan& plan, const std::optional<Hardware>& hardware) {
  TextTable table({"PROCESS", "ITEM", "       MIB"});
  for (const ProcessPlan* process : {&plan.trainer, &plan.rollout, &plan.local}) {
    for (const MemoryItem& item : process->memory) {
      table.AddRow({process->process, item.name, Mebibytes(item.bytes)});
    }
    table.AddRow({process->process, "total", Mebibytes(TotalBytes(process->memory))});
  }
  std::printf("%s", table.Format().c_str());
  if (plan.trainer.checkpoint_copy_bytes > 0) {
    std::printf("If the trainer has %.1f MiB more, it writes checkpoints from a copy.\n",
                static_cast<double>(plan.trainer.checkpoint_copy_bytes) / (1 << 20));
  }
  if (!hardware.has_value()) return;
  std::printf("\n%s:\n", hardware->name.c_str());
  for (const ProcessPlan* process : {&plan.trainer, &plan.rollout}) {
    if (process->devices > 0 && process->tokens_per_second == 0) continue;  // it computes nothing
    if (process->devices == 0) {
      std::printf("%-8s does not fit\n", process->process.c_str());
    } else {
      std::printf("%-8s %d needed, at most %.0f response tokens per second each\n",
                  process->process.c_str(), static_cast<int>(process->devices),
                  process->tokens_per_second);
    }
  }
}

nlohmann::ordered_json ToJson(const JobPlan& plan, bool has_hardware) {
  nlohmann::ordered_json json;
  for (const ProcessPlan* process : {&plan.trainer, &plan.rollout, &plan.local}) {
    json[process->process] = ToJson(*process, has_hardware);
  }
  return json;
}

absl::Status Plan(const PlanFlags& flags) {
  std::optional<Hardware> hardware;
  if (!flags.hardware.empty()) {
    FRESHET_ASSIGN_OR_RETURN(hardware, ParseHardware(flags.hardware));
  }
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobResult> jobs, ReadJobs(flags.job, flags.overrides));
  nlohmann::ordered_json json;
  for (const JobResult& job : jobs) {
    FRESHET_ASSIGN_OR_RETURN(const std::unique_ptr<JobSetup> setup,
                             PrepareJob(job.spec, job.places));
    const JobPlan plan =
        PlanJob(*setup, ReadContainerLimits(), hardware.has_value() ? &*hardware : nullptr);
    if (flags.json) {
      (job.policy.empty() ? json : json[job.policy]) = ToJson(plan, hardware.has_value());
      continue;
    }
    if (!job.policy.empty()) std::printf("policy %s:\n", job.policy.c_str());
    PrintText(plan, hardware);
  }
  if (flags.json) std::printf("%s\n", json.dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddPlanCommand(const Command& app) {
  PlanFlags& flags = app.Keep<PlanFlags>();
  const Command plan = app.AddCommand("plan", "print the memory that a job needs");
  plan.Add("JOB", flags.job, "job file (YAML)").Required();
  plan.Add("--set", flags.overrides, "override a key: a.b=c").OneValueEach();
  plan.Add("--hardware", flags.hardware,
           "also print device counts and the speed that the hardware allows: l40s, a100, h100, "
           "h200, b200, or GFLOPS:GB_PER_SECOND:GB");
  plan.AddFlag("--json", flags.json, "bytes of every item, as JSON");
  plan.OnRun([&flags] {
    const absl::Status status = Plan(flags);
    return status.ok() ? kExitDone : FailContent(status);
  });
}

}  // namespace freshet
