#include "dataset/dataset_setup.h"

#include <algorithm>
#include <map>
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
#include "job/eval_sets.h"
#include "job/reward_types.h"
#include "text/row_tokens.h"

namespace freshet {
namespace {

using job::v1::JobSpec;

absl::StatusOr<JobDatasets> OpenGenerated(const JobSpec& spec) {
  JobDatasets data;
  FRESHET_ASSIGN_OR_RETURN(data.train, MakeGeneratedDataset(spec, DatasetPart::kTrain));
  if (spec.has_eval()) {
    FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows,
                             MakeGeneratedDataset(spec, DatasetPart::kHeldOut));
    data.held_out.assign(EvalSets(spec).size(), std::move(rows));
  }
  return data;
}

// Row fields that reward component texts reference.
std::vector<std::string> RewardFields(const job::v1::Reward& reward) {
  std::vector<std::string> fields;
  for (const auto& [name, component] : reward.components()) {
    const absl::StatusOr<TextTemplate> text = TextTemplate::Parse(component.text());
    if (!text.ok()) continue;  // reported when the scorer is created
    for (const std::string& field : text->fields()) {
      if (field != "answer" && IsRowField(component.type(), field)) fields.push_back(field);
    }
  }
  std::sort(fields.begin(), fields.end());
  fields.erase(std::unique(fields.begin(), fields.end()), fields.end());
  return fields;
}

absl::StatusOr<JobDatasets> OpenJsonl(const JobSpec& spec, const DataRoots& roots) {
  const job::v1::Dataset& data = spec.dataset();
  JsonlDatasetOptions options;
  options.path = data.path();
  options.dataset = data;
  options.required = RewardFields(spec.reward());
  JobDatasets opened;
  FRESHET_ASSIGN_OR_RETURN(opened.train, JsonlDataset::Load(options, roots));
  std::map<std::string, std::shared_ptr<const Dataset>> files;  // "": rows held out of `path`
  if (const int64_t held_out = HeldOutRows(spec); held_out > 0) {
    FRESHET_ASSIGN_OR_RETURN(DatasetSplit split, SplitHeldOut(std::move(opened.train), held_out));
    opened.train = std::move(split.train);
    files[""] = std::move(split.held_out);
  }
  for (const job::v1::EvalSet& set : EvalSets(spec)) {
    options.path = EvalPath(spec, set);
    std::shared_ptr<const Dataset>& rows = files[options.path];
    if (rows == nullptr) {
      FRESHET_ASSIGN_OR_RETURN(rows, JsonlDataset::Load(options, roots));
    }
    opened.held_out.push_back(rows);
  }
  return opened;
}

absl::StatusOr<JobDatasets> OpenTemplate(const JobSpec& spec) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows,
                           MakeTemplateDataset(spec.dataset(), RewardFields(spec.reward())));
  // Template rows are too few to hold any out: evaluate on the same rows.
  return JobDatasets{rows, std::vector(EvalSets(spec).size(), rows)};
}

int64_t LongestResponse(const JobSpec& spec) {
  int64_t longest = spec.rollout().max_new_tokens();
  for (const job::v1::EvalSet& set : EvalSets(spec)) {
    longest = std::max(longest, set.max_new_tokens());
  }
  return longest;
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

absl::StatusOr<JobDatasets> OpenDatasets(const JobSpec& spec, const DataRoots& roots) {
  const std::string& type = spec.dataset().type();
  if (type == "arithmetic" || type == "copy") return OpenGenerated(spec);
  return type == "jsonl" ? OpenJsonl(spec, roots) : OpenTemplate(spec);
}

PromptEncoder MakePromptEncoder(const JobSpec& spec, const Tokenizer& tokenizer) {
  return [dataset = spec.dataset(), &tokenizer](const std::string& text) {
    return EncodePrompt(tokenizer, dataset, text);
  };
}

absl::StatusOr<PromptBounds> CheckRows(const JobSpec& spec, const JobDatasets& data,
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
  for (auto rows = data.held_out.begin(); rows != data.held_out.end(); ++rows) {
    if (std::find(data.held_out.begin(), rows, *rows) != rows) continue;  // shared with another set
    FRESHET_RETURN_IF_ERROR(ValidatePrompts(**rows, encoder, bounds.most));
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
