#include "controller/jobs/loss_check.h"

#include <variant>

#include "trainer/loss_setup.h"

namespace freshet {

std::vector<Fault> CheckLoss(const JobSpec& spec, const KeyPlaces& places, LossSpec& loss) {
  const auto resolved = ResolveJobLoss(spec);
  std::vector<Fault> faults;
  if (std::holds_alternative<LossSpec>(resolved)) {
    loss = std::get<LossSpec>(resolved);
    return faults;
  }
  for (const LossFault& fault : std::get<std::vector<LossFault>>(resolved)) {
    faults.push_back(places.At(fault.field, fault.message));
  }
  return faults;
}

}  // namespace freshet
