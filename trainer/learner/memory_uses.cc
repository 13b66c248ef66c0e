#include "trainer/learner/memory_uses.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "base/str_cat.h"
#include "model/parameter_layout.h"
#include "trainer/learner/learner_memory.h"

namespace freshet {
namespace {

constexpr char kMoreHostMemory[] = "give the trainer more memory";

std::string MoreMemory(at::Device device) {
  if (!device.is_cpu()) {
    return "use a GPU with more memory; an engine and other processes on it need memory too";
  }
  return StrCat(kMoreHostMemory, ", or divide the model by trainer.ranks and trainer.sharding");
}

}  // namespace

MemoryUse UseOf(std::string_view item, const PolicyLearnerOptions& options, at::Device device) {
  PolicyLearnerOptions placed = options;
  placed.device = device.str();
  const MemoryPlan plan = PlanLearner(placed, BatchShape());
  const auto found = std::find_if(plan.begin(), plan.end(),
                                  [&](const MemoryItem& planned) { return planned.name == item; });
  FRESHET_CHECK(found != plan.end());
  const bool on_host = found->place == MemoryItem::Place::kHost;
  return {found->name, found->bytes, on_host ? at::Device(at::kCPU) : device,
          on_host ? kMoreHostMemory : MoreMemory(device)};
}

MemoryUse ActivationsOf(int64_t tokens, const PolicyLearnerOptions& options, at::Device device) {
  const bool recomputes = options.activation_checkpointing;
  return {
      StrCat("activations of a microbatch of ", tokens, " tokens"),
      ProductOfSizes({tokens, ActivationBytesPerToken(options.model, options.bf16, recomputes)}),
      device,
      StrCat("lower trainer.max_tokens_per_microbatch",
             recomputes ? "" : ", set trainer.activation_checkpointing",
             ", or lower rollout.max_new_tokens")};
}

MemoryUse ReferenceOf(const PolicyLearnerOptions& options, at::Device device) {
  return {"reference weights", PublishedBytes(options), device, MoreMemory(device)};
}

MemoryUse OptimizerStateOf(int64_t elements, at::Device device) {
  constexpr auto kMoments = static_cast<int64_t>(2 * sizeof(float));
  return {"optimizer state", ProductOfSizes({kMoments, elements}), device, MoreMemory(device)};
}

}  // namespace freshet
