#include "job/loss_setup.h"

#include <optional>

namespace freshet {

std::variant<LossSpec, std::vector<LossError>> ResolveJobLoss(const job::v1::JobSpec& spec) {
// Converts an optional proto field to std::optional.
#define FRESHET_OPTIONAL(message, field) \
  ((message).has_##field() ? std::make_optional((message).field()) : std::nullopt)
  const job::v1::Loss& keys = spec.loss();
  LossOverrides overrides;
  overrides.preset = FRESHET_OPTIONAL(keys, preset);
  overrides.advantage = FRESHET_OPTIONAL(keys, advantage);
  overrides.surrogate = FRESHET_OPTIONAL(keys, surrogate);
  overrides.ratio = FRESHET_OPTIONAL(keys, ratio);
  overrides.anchor = FRESHET_OPTIONAL(keys, anchor);
  overrides.clip_low = FRESHET_OPTIONAL(keys.clip(), low);
  overrides.clip_high = FRESHET_OPTIONAL(keys.clip(), high);
  overrides.clip_dual = FRESHET_OPTIONAL(keys.clip(), dual);
  overrides.correction_kind = FRESHET_OPTIONAL(keys.correction(), kind);
  overrides.correction_cap = FRESHET_OPTIONAL(keys.correction(), cap);
  overrides.correction_low = FRESHET_OPTIONAL(keys.correction(), low);
  overrides.kl_kind = FRESHET_OPTIONAL(keys.kl(), kind);
  overrides.kl_coef = FRESHET_OPTIONAL(keys.kl(), coef);
  overrides.aggregate = FRESHET_OPTIONAL(keys, aggregate);
  overrides.entropy_coef = FRESHET_OPTIONAL(keys, entropy_coef);
#undef FRESHET_OPTIONAL
  return ResolveLoss(overrides,
                     {spec.group_size(), spec.prompts_per_step(), spec.staleness().max()});
}

}  // namespace freshet
