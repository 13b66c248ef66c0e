#include "dataset/dataset_setup.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/text_template.h"
#include "dataset/error_list.h"
#include "dataset/generated_dataset.h"
#include "dataset/jsonl_dataset.h"
#include "dataset/template_dataset.h"
#include "text/row_tokens.h"

namespace freshet {
namespace {

using job::v1::JobSpec;

absl::StatusOr<DatasetSplit> OpenGenerated(const JobSpec& spec) {
  DatasetSplit split;
  FRESHET_ASSIGN_OR_RETURN(split.train, MakeGeneratedDataset(spec, DatasetPart::kTrain));
  if (spec.has_eval()) {
    FRESHET_ASSIGN_OR_RETURN(split.held_out, MakeGeneratedDataset(spec, DatasetPart::kHeldOut));
  }
  return split;
}

// Row fields that reward component texts reference.
std::vector<std::string> RewardFields(const job::v1::Reward& reward) {
  std::vector<std::string> fields;
  for (const auto& [name, component] : reward.components()) {
    const absl::StatusOr<TextTemplate> text = TextTemplate::Parse(component.text());
    if (!text.ok()) continue;  // reported when the scorer is created
    for (const std::string& field : text->fields()) {
      if (field != "answer" && field != "prompt") fields.push_back(field);
    }
  }
  std::sort(fields.begin(), fields.end());
  fields.erase(std::unique(fields.begin(), fields.end()), fields.end());
  return fields;
}

absl::StatusOr<DatasetSplit> OpenJsonl(const JobSpec& spec, const DataRoots& roots) {
  const job::v1::Dataset& data = spec.dataset();
  JsonlDatasetOptions options;
  options.path = data.path();
  options.dataset = data;
  options.required = RewardFields(spec.reward());
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows, JsonlDataset::Load(options, roots));
  if (!spec.has_eval()) return DatasetSplit{std::move(rows), nullptr};
  if (!data.has_eval_path()) return SplitHeldOut(std::move(rows), spec.eval().rows());
  options.path = data.eval_path();
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> held_out,
                           JsonlDataset::Load(options, roots));
  return DatasetSplit{std::move(rows), std::move(held_out)};
}

absl::StatusOr<DatasetSplit> OpenTemplate(const JobSpec& spec) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows,
                           MakeTemplateDataset(spec.dataset(), RewardFields(spec.reward())));
  // Template rows are too few to hold any out: evaluate on the same rows.
  return DatasetSplit{rows, spec.has_eval() ? rows : nullptr};
}

int64_t LongestResponse(const JobSpec& spec) {
  return std::max(spec.rollout().max_new_tokens(), spec.eval().max_new_tokens());
}

// Checks that every row of the supervised warm-up has an answer that fits after its prompt.
absl::Status CheckAnswers(const job::v1::Dataset& dataset, const Dataset& data,
                          const Tokenizer& tokenizer, int64_t context_tokens) {
  ErrorList errors;
  for (int64_t i = 0; i < data.size(); ++i) {
    FRESHET_ASSIGN_OR_RETURN(const DatasetRow row, data.Get(i));
    const std::string where = data.Where(i);
    const auto answer = EncodeAnswer(tokenizer, dataset, row.attributes, where);
    if (!answer.ok()) {
      errors.Add(Message(answer.status()));
      continue;
    }
    FRESHET_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                             EncodePrompt(tokenizer, dataset, row.prompt));
    const size_t tokens = prompt.size() + answer->size();
    if (static_cast<int64_t>(tokens) <= context_tokens) continue;
    errors.Add(StrCat(where, ": prompt and answer have ", tokens,
                      " tokens, the model's context is ", context_tokens,
                      "; shorten or remove the row"));
  }
  return errors.ToStatus();
}

}  // namespace

absl::StatusOr<DatasetSplit> OpenDatasets(const JobSpec& spec, const DataRoots& roots) {
  const std::string& type = spec.dataset().type();
  if (type == "arithmetic" || type == "copy") return OpenGenerated(spec);
  return type == "jsonl" ? OpenJsonl(spec, roots) : OpenTemplate(spec);
}

PromptEncoder MakePromptEncoder(const JobSpec& spec, const Tokenizer& tokenizer) {
  return [dataset = spec.dataset(), &tokenizer](const std::string& text) {
    return EncodePrompt(tokenizer, dataset, text);
  };
}

absl::StatusOr<PromptBounds> CheckRows(const JobSpec& spec, const DatasetSplit& data,
                                       const Tokenizer& tokenizer, int64_t context_tokens) {
  PromptBounds bounds;
  bounds.most = context_tokens - LongestResponse(spec);
  if (bounds.most < 1) {
    return InvalidArgument("rollout.max_new_tokens: ", LongestResponse(spec),
                           " leaves no room for a prompt in the model's context of ",
                           context_tokens, " tokens");
  }
  const PromptEncoder encoder = [&](const std::string& text) {
    absl::StatusOr<std::vector<int32_t>> ids = EncodePrompt(tokenizer, spec.dataset(), text);
    if (ids.ok()) bounds.longest = std::max(bounds.longest, static_cast<int64_t>(ids->size()));
    return ids;
  };
  FRESHET_RETURN_IF_ERROR(ValidatePrompts(*data.train, encoder, bounds.most));
  if (data.held_out != nullptr) {
    FRESHET_RETURN_IF_ERROR(ValidatePrompts(*data.held_out, encoder, bounds.most));
  }
  if (spec.warmup().has_sft()) {
    FRESHET_RETURN_IF_ERROR(CheckAnswers(spec.dataset(), *data.train, tokenizer, context_tokens));
  }
  return bounds;
}

PromptFeederOptions MakeFeederOptions(const JobSpec& spec, const PromptBounds& bounds) {
  PromptFeederOptions options;
  options.seed = static_cast<uint64_t>(spec.seed());
  options.shuffle = spec.dataset().shuffle();
  options.max_prompt_tokens = bounds.most;
  return options;
}

}  // namespace freshet
