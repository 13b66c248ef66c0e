#ifndef FRESHET_LOCAL_JOB_PLAN_H_
#define FRESHET_LOCAL_JOB_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/container_limits.h"
#include "base/memory_plan.h"
#include "local/job_setup.h"

namespace freshet {

// What one processor or GPU can do at most.
struct Hardware {
  std::string name;
  int64_t memory_bytes = 0;
  double flops = 0;             // bf16 products, per second
  double bytes_per_second = 0;  // of its memory
};

// Names that ParseHardware knows.
std::vector<std::string> HardwareNames();
// One of HardwareNames(), or GFLOPS:GB_PER_SECOND:GB, such as 400:45:24. INVALID_ARGUMENT: anything
// else.
absl::StatusOr<Hardware> ParseHardware(const std::string& text);

struct ProcessPlan {
  std::string process;  // "trainer", "rollout", "local"
  MemoryPlan memory;
  // Of the copy from which a checkpoint is written where memory allows; not part of `memory`.
  int64_t checkpoint_copy_bytes = 0;
  // Upper bounds that the hardware sets; 0 without hardware.
  double tokens_per_second = 0;
  int64_t devices = 0;  // fewest that hold it; a trainer's share its state
};

// What a job needs: as processes of a cluster with one trainer and one rollout, and as one process.
struct JobPlan {
  ProcessPlan trainer, rollout, local;
  MemoryPlan local_gpu;  // of the one process, beside local.memory
};

// Which parts of one process compute on a GPU.
struct GpuUse {
  bool trainer = false;
  bool rollout = false;
};

// For groups as large as the job allows: its longest prompt with responses of max_new_tokens. An
// inference server beside a rollout is not included. Pure.
// Without `hardware` (null), the plan has memory only.
JobPlan PlanJob(const JobSetup& setup, const ContainerLimits& limits, const Hardware* hardware,
                const GpuUse& local = {});

}  // namespace freshet

#endif  // FRESHET_LOCAL_JOB_PLAN_H_
