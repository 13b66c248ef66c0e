#include "trainer/checkpoint/checkpoint_choice.h"

#include "base/str_cat.h"

namespace freshet {

CheckpointDecision DecideCheckpoint(const CheckpointTry& tried) {
  std::string error;
  if (tried.stage == CheckpointTry::Stage::kLoading && absl::IsDataLoss(tried.status)) {
    error = "it is damaged";
  } else if (tried.stage == CheckpointTry::Stage::kOpening &&
             absl::IsFailedPrecondition(tried.status)) {
    error = "it is not of the history that the datastore has";
  } else {
    return {};
  }
  return {tried.older > 0,
          StrCat(error, ": ", Message(tried.status),
                 tried.older > 0 ? "" : "; there is no older checkpoint to resume from")};
}

}  // namespace freshet
