#include "trainer/learner/sft_warmup.h"

#include <utility>
#include <vector>

#include "base/row_order.h"
#include "base/status_macros.h"
#include "job/tasks.h"
#include "text/row_tokens.h"

namespace freshet {
namespace {

// A separate stream, so that the policy's first prompts are not the last ones of the warm-up.
constexpr uint64_t kWarmupStream = 0x73667477ULL;

absl::StatusOr<SftExample> MakeExample(const job::v1::JobSpec& spec, const Tokenizer& tokenizer,
                                       WarmupRows& rows, int64_t index) {
  FRESHET_ASSIGN_OR_RETURN(const WarmupRow row, rows.Get(index));
  const job::v1::Dataset& dataset = DatasetOfRow(spec, row.attributes);
  SftExample example;
  FRESHET_ASSIGN_OR_RETURN(example.prompt, EncodePrompt(tokenizer, dataset, row.prompt));
  FRESHET_ASSIGN_OR_RETURN(example.answer,
                           EncodeAnswer(tokenizer, dataset, row.attributes, row.where));
  return example;
}

}  // namespace

absl::Status RunSftWarmup(const job::v1::JobSpec& spec, const Tokenizer& tokenizer,
                          WarmupRows& rows, PolicyLearner& learner,
                          const WarmupProgress& progress) {
  const job::v1::Sft& sft = spec.warmup().sft();
  const uint64_t seed = static_cast<uint64_t>(spec.seed()) ^ kWarmupStream;
  int64_t next = 0;
  for (int64_t step = 1; step <= sft.steps(); ++step) {
    std::vector<SftExample> examples;
    for (int64_t i = 0; i < sft.batch_size(); ++i) {
      const int64_t row = RowOfOrdinal(seed, rows.size(), next++, /*shuffle=*/true);
      FRESHET_ASSIGN_OR_RETURN(SftExample example, MakeExample(spec, tokenizer, rows, row));
      examples.push_back(std::move(example));
    }
    FRESHET_ASSIGN_OR_RETURN(const double loss, learner.SftStep(examples, sft.learning_rate()));
    if (!progress(step, sft.steps(), loss)) return absl::CancelledError("warm-up was stopped");
  }
  learner.BeginPolicyTraining();
  return absl::OkStatus();
}

}  // namespace freshet
