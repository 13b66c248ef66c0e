#include "services/local/warmup.h"

#include <utility>
#include <vector>

#include "controller/dataset/prompt_source.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Warm-up has an order of its own, so that the policy's first prompts are not the last ones seen.
constexpr uint64_t kWarmupStream = 0x73667477ULL;

absl::StatusOr<SftExample> MakeExample(const JobSetup& setup, int64_t index) {
  FRESHET_ASSIGN_OR_RETURN(const DatasetRow row, setup.data.train->Get(index));
  SftExample example;
  FRESHET_ASSIGN_OR_RETURN(example.prompt, EncodePrompt(setup, row.prompt));
  FRESHET_ASSIGN_OR_RETURN(example.answer,
                           EncodeAnswer(setup, row, setup.data.train->Where(index)));
  return example;
}

}  // namespace

absl::Status RunSftWarmup(const JobSetup& setup, PolicyLearner& learner,
                          const WarmupProgress& progress) {
  const job::v1::Sft& sft = setup.spec.warmup().sft();
  const uint64_t seed = static_cast<uint64_t>(setup.spec.seed()) ^ kWarmupStream;
  int64_t next = 0;
  for (int64_t step = 1; step <= sft.steps(); ++step) {
    std::vector<SftExample> examples;
    for (int64_t i = 0; i < sft.batch_size(); ++i) {
      const int64_t row = RowOfOrdinal(seed, setup.data.train->size(), next++, /*shuffle=*/true);
      FRESHET_ASSIGN_OR_RETURN(SftExample example, MakeExample(setup, row));
      examples.push_back(std::move(example));
    }
    FRESHET_ASSIGN_OR_RETURN(const double loss, learner.SftStep(examples, sft.learning_rate()));
    if (!progress(step, sft.steps(), loss)) return absl::CancelledError("warm-up was stopped");
  }
  learner.BeginPolicyTraining();
  return absl::OkStatus();
}

}  // namespace freshet
