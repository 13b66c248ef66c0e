#include <string>

#include "job/job_kind.h"
#include "job/rule_context.h"

namespace freshet {
namespace {

// Keys that only training has a use for. Most blocks of training are refused by `when`.
void CheckTrainingKeys(RuleContext& context) {
  const auto refuse = [&context](const std::string& path, bool used) {
    if (used && context.Usable({path})) {
      context.Add(path, "has no meaning with kind generate, which trains nothing; remove it");
    }
  };
  const job::v1::Trainer& trainer = context.spec().trainer();
  refuse("trainer.minibatches_per_step", trainer.minibatches_per_step() > 1);
  refuse("trainer.threads", trainer.has_threads());
  refuse("trainer.activation_checkpointing", trainer.activation_checkpointing());
  refuse("trainer.ranks", trainer.ranks() > 1);
  refuse("trainer.device", trainer.device() == "cuda");
  refuse("trainer.sharding", trainer.sharding() != "none");
  refuse("trainer.rank_wait_ms", trainer.has_rank_wait_ms());
  const job::v1::Checkpoint& checkpoint = context.spec().checkpoint();
  refuse("checkpoint.dtype", checkpoint.dtype() == "bf16");
  refuse("checkpoint.keep_every", checkpoint.keep_every() > 0);
  refuse("checkpoint.keep_best", checkpoint.keep_best() > 0);
  refuse("staleness.policy", context.spec().staleness().policy() == "mask");
  refuse("replay", context.spec().has_replay());
  refuse("adaptive_rollouts", context.spec().has_adaptive_rollouts());
  refuse("environment.mask_invalid_turns", context.spec().environment().mask_invalid_turns());
}

}  // namespace

void CheckGenerateRules(RuleContext& context) {
  if (!context.Usable({"kind"})) return;
  if (Generates(context.spec())) {
    CheckTrainingKeys(context);
  } else if (context.spec().output().token_ids() && context.Usable({"output.token_ids"})) {
    context.Add("output.token_ids", "applies only with kind generate; remove it");
  }
}

}  // namespace freshet
