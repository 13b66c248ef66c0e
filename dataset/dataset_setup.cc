#include "dataset/dataset_setup.h"

#include <fcntl.h>

#include <algorithm>
#include <functional>
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
#include "dataset/task_mixture.h"
#include "dataset/template_dataset.h"
#include "job/eval_sets.h"
#include "job/reward_types.h"
#include "job/tasks.h"
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

// Checks that a row has the budgets of the reward's `length` components of shape budget.
std::function<absl::Status(const DatasetRow&)> BudgetCheck(const job::v1::Reward& reward) {
  std::vector<std::pair<std::string, TextTemplate>> budgets;
  for (const auto& [name, component] : reward.components()) {
    if (component.type() != "length" || component.shape() != "budget") continue;
    absl::StatusOr<TextTemplate> text = TextTemplate::Parse(component.text());
    if (text.ok()) budgets.emplace_back(name, *std::move(text));  // else see RewardFields
  }
  if (budgets.empty()) return nullptr;
  return [budgets](const DatasetRow& row) {
    for (const auto& [name, text] : budgets) {
      const absl::StatusOr<std::string> budget = text.Render(row.attributes);
      if (budget.ok() && !ParseTokenBudget(*budget).has_value()) {
        return InvalidArgument("reward.components.", name, ": ", BudgetError());
      }
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<JobDatasets> OpenJsonl(const JobSpec& spec, const DataRoots& roots) {
  const job::v1::Dataset& data = spec.dataset();
  JsonlDatasetOptions options;
  options.path = data.path();
  options.dataset = data;
  options.required = RewardFields(spec.reward());
  options.check = BudgetCheck(spec.reward());
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
  if (data.has_more_path()) {
    const absl::Status folder = roots.Open(data.more_path(), O_RDONLY | O_DIRECTORY).status();
    if (!folder.ok() && !absl::IsNotFound(folder)) return folder;
    if (!folder.ok() && roots.OpenFile(data.more_path()).ok()) {
      return InvalidArgument("dataset.more_path: ", data.more_path(),
                             ": is a file; name a folder in which further files appear");
    }
    opened.growing =
        std::make_shared<GrowingDataset>(opened.train, options, data.more_path(), roots);
    if (!folder.ok()) {
      opened.warning = StrCat("dataset.more_path: the folder ", data.more_path(),
                              " is missing; make it if further files are to appear there");
    }
    opened.train = opened.growing;
  }
  return opened;
}

absl::StatusOr<JobDatasets> OpenTemplate(const JobSpec& spec) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows,
                           MakeTemplateDataset(spec.dataset(), RewardFields(spec.reward())));
  // Template rows are too few to hold any out: evaluate on the same rows.
  return JobDatasets{rows, std::vector(EvalSets(spec).size(), rows)};
}

absl::StatusOr<JobDatasets> OpenOne(const JobSpec& spec, const DataRoots& roots) {
  const std::string& type = spec.dataset().type();
  if (type == "arithmetic" || type == "copy") return OpenGenerated(spec);
  return type == "jsonl" ? OpenJsonl(spec, roots) : OpenTemplate(spec);
}

std::shared_ptr<TaskCurriculum> MakeCurriculum(const JobSpec& spec) {
  std::vector<TaskCurriculum::Task> tasks;
  for (const std::string& task : TaskNames(spec)) {
    tasks.push_back(
        {task, static_cast<double>(spec.tasks().at(task).weight()), SuccessReward(spec, task)});
  }
  const job::v1::Curriculum& curriculum = spec.curriculum();
  return std::make_shared<TaskCurriculum>(
      std::move(tasks), TaskCurriculum::Options{curriculum.least_factor(), curriculum.smoothing()});
}

absl::StatusOr<JobDatasets> OpenTasks(const JobSpec& spec, const DataRoots& roots) {
  const std::vector<job::v1::EvalSet> sets = EvalSets(spec);
  JobDatasets data;
  data.held_out.resize(sets.size());
  std::vector<MixedTask> mixed;
  for (const std::string& task : TaskNames(spec)) {
    FRESHET_ASSIGN_OR_RETURN(const JobDatasets own, OpenOne(TaskSpec(spec, task), roots));
    mixed.push_back({spec.tasks().at(task).weight(), DatasetOfTask(spec, task).shuffle(),
                     RowsOfTask(task, own.train)});
    std::map<std::shared_ptr<const Dataset>, std::shared_ptr<const Dataset>> shared;
    auto rows = own.held_out.begin();
    for (size_t i = 0; i < sets.size(); ++i) {
      if (sets[i].task() != task) continue;
      std::shared_ptr<const Dataset>& held_out = shared[*rows];
      if (held_out == nullptr) held_out = RowsOfTask(task, *rows);
      data.held_out[i] = held_out;
      ++rows;
    }
  }
  if (spec.has_curriculum()) data.curriculum = MakeCurriculum(spec);
  data.train = MixTasks(std::move(mixed), data.curriculum);
  return data;
}

int64_t LongestResponse(const JobSpec& spec) {
  int64_t longest = spec.rollout().max_new_tokens();
  for (const job::v1::EvalSet& set : EvalSets(spec)) {
    longest = std::max(longest, set.max_new_tokens());
  }
  return longest;
}

// Checks that every row of the supervised warm-up has an answer that fits after its prompt.
absl::Status CheckAnswers(const JobSpec& spec, const Dataset& data, const Tokenizer& tokenizer,
                          int64_t context_tokens) {
  ErrorList errors;
  for (int64_t i = 0; i < data.size(); ++i) {
    FRESHET_ASSIGN_OR_RETURN(const DatasetRow row, data.Get(i));
    const job::v1::Dataset& dataset = DatasetOfRow(spec, row.attributes);
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
  return spec.tasks().empty() ? OpenOne(spec, roots) : OpenTasks(spec, roots);
}

PromptEncoder MakePromptEncoder(const JobSpec& spec, const Tokenizer& tokenizer) {
  return [spec, &tokenizer](const DatasetRow& row) {
    return EncodePrompt(tokenizer, DatasetOfRow(spec, row.attributes), row.prompt);
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
  const PromptEncoder encoder = [&](const DatasetRow& row) {
    absl::StatusOr<std::vector<int32_t>> ids =
        EncodePrompt(tokenizer, DatasetOfRow(spec, row.attributes), row.prompt);
    if (ids.ok()) bounds.longest = std::max(bounds.longest, static_cast<int64_t>(ids->size()));
    return ids;
  };
  FRESHET_RETURN_IF_ERROR(ValidatePrompts(*data.train, encoder, bounds.most));
  for (auto rows = data.held_out.begin(); rows != data.held_out.end(); ++rows) {
    if (std::find(data.held_out.begin(), rows, *rows) != rows) continue;  // shared with another set
    FRESHET_RETURN_IF_ERROR(ValidatePrompts(**rows, encoder, bounds.most));
  }
  if (spec.warmup().has_sft()) {
    FRESHET_RETURN_IF_ERROR(CheckAnswers(spec, *data.train, tokenizer, context_tokens));
  }
  if (data.growing != nullptr) {
    // What was set up for the longest prompt must do for later ones.
    data.growing->SetCheck([encode = MakePromptEncoder(spec, tokenizer),
                            longest = bounds.longest](const Dataset& rows) {
      return ValidatePrompts(rows, encode, longest);
    });
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
