#include "job/loss_check.h"

#include <variant>

#include "job/loss_setup.h"

namespace freshet {

std::vector<ConfigError> CheckLoss(const JobSpec& spec, const KeyPlaces& places, LossSpec& loss) {
  const auto resolved = ResolveJobLoss(spec);
  std::vector<ConfigError> errors;
  if (std::holds_alternative<LossSpec>(resolved)) {
    loss = std::get<LossSpec>(resolved);
    return errors;
  }
  for (const LossError& error : std::get<std::vector<LossError>>(resolved)) {
    errors.push_back(places.At(error.field, error.message));
  }
  return errors;
}

}  // namespace freshet
