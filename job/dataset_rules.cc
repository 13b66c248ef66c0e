#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_template.h"
#include "base/utf8.h"
#include "job/eval_sets.h"
#include "job/reward_types.h"
#include "job/rule_context.h"
#include "job/tasks.h"

namespace freshet {
namespace {

using Components = std::map<std::string, job::v1::RewardComponent>;

// Attribute of every row that has a gold answer.
constexpr char kAnswerField[] = "answer";

Components SortedComponents(const JobSpec& spec) {
  return {spec.reward().components().begin(), spec.reward().components().end()};
}

bool IsGenerated(const job::v1::Dataset& dataset) {
  return dataset.type() == "arithmetic" || dataset.type() == "copy";
}

// Length in characters of a generated prompt including '=', and of its answer.
int64_t PromptCharacters(const job::v1::Dataset& dataset) {
  return dataset.type() == "arithmetic" ? dataset.operands() * (dataset.digits() + 1)
                                        : dataset.length() + 1;
}
int64_t AnswerCharacters(const job::v1::Dataset& dataset) {
  return dataset.type() == "arithmetic" ? dataset.digits() + 1 : dataset.length();
}

std::string KeyOfSet(const RuleContext& context, size_t set, std::string_view setting) {
  return EvalSetKey(context.spec(), context.SetNumber(set), setting);
}

void CheckAlphabet(RuleContext& context) {
  const job::v1::Tokenizer& tokenizer = context.spec().tokenizer();
  if (tokenizer.type() != "char" || !context.Usable({"tokenizer"})) {
    return;
  }
  std::set<std::string> alphabet;
  for (const std::string& character : Utf8Characters(tokenizer.alphabet())) {
    if (!alphabet.insert(character).second) {
      context.Add("tokenizer.alphabet", "holds '", Excerpt(character),
                  "' twice; give each character once");
      return;
    }
  }
}

// Checks that the tokenizer can encode generated rows.
void CheckCharacters(RuleContext& context) {
  const job::v1::Tokenizer& tokenizer = context.spec().tokenizer();
  const job::v1::Dataset& dataset = context.spec().dataset();
  if (tokenizer.type() != "char" || !IsGenerated(dataset) ||
      !context.Usable({"tokenizer", "dataset"})) {
    return;
  }
  const std::vector<std::string> characters = Utf8Characters(tokenizer.alphabet());
  const std::set<std::string> alphabet(characters.begin(), characters.end());
  const std::string needed =
      dataset.type() == "arithmetic" ? "0123456789+=" : dataset.symbols() + "=";
  for (const std::string& character : Utf8Characters(needed)) {
    if (!alphabet.contains(character)) {
      context.Add("tokenizer.alphabet", "lacks '", Excerpt(character), "', which dataset.type ",
                  dataset.type(), " needs");
      return;
    }
  }
}

// Checks that prompt and completion fit in the context. Lengths are known for a char tokenizer with
// generated rows; otherwise a prompt counts as one token.
void CheckLengths(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (!context.Usable({"rollout.max_new_tokens", "model", "tokenizer", "dataset"})) {
    return;
  }
  const bool known = IsGenerated(spec.dataset()) && spec.tokenizer().type() == "char";
  const int64_t answer = AnswerCharacters(spec.dataset());
  if (known && !spec.has_environment() && spec.rollout().max_new_tokens() < answer) {
    context.Add("rollout.max_new_tokens", "must be at least ", answer,
                ", the length of an answer, got ", spec.rollout().max_new_tokens());
  }
  if (!spec.model().has_config()) {
    return;
  }
  const int64_t prompt = known ? PromptCharacters(spec.dataset()) : 1;
  const int64_t room = spec.model().config().max_position_embeddings() - prompt;
  const auto check = [&](const std::string& path, int64_t tokens) {
    if (tokens > room) {
      context.Add(path, "a prompt of ", prompt, prompt == 1 ? " token and " : " tokens and ",
                  tokens, " new ones do not fit into model.config.max_position_embeddings ",
                  prompt + room, room > 0 ? StrCat("; the most is ", room) : "");
    }
  };
  check("rollout.max_new_tokens", spec.rollout().max_new_tokens());
  if (!spec.has_eval() || !context.Usable({"eval"})) {
    return;
  }
  const std::vector<job::v1::EvalSet> sets = EvalSets(spec);
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].max_new_tokens() == spec.rollout().max_new_tokens()) continue;
    check(KeyOfSet(context, i, "max_new_tokens"), sets[i].max_new_tokens());
  }
}

bool CheckSymbols(RuleContext& context) {
  const std::string& symbols = context.spec().dataset().symbols();
  const std::vector<std::string> all = Utf8Characters(symbols);
  const std::set<std::string> unique(all.begin(), all.end());
  if (unique.size() == all.size() && !unique.contains("=")) {
    return true;
  }
  context.Add("dataset.symbols", "must be different characters without '=', got '",
              Excerpt(symbols), "'");
  return false;
}

// Checks that there are enough rows for training and evaluation.
void CheckGeneratedRows(RuleContext& context) {
  const job::v1::Dataset& dataset = context.spec().dataset();
  if (!IsGenerated(dataset) || !context.Usable({"dataset"})) {
    return;
  }
  double base = 10;
  double exponent = static_cast<double>(dataset.operands() * dataset.digits());
  if (dataset.type() == "copy") {
    if (!CheckSymbols(context)) return;
    base = static_cast<double>(Utf8Characters(dataset.symbols()).size());
    exponent = static_cast<double>(dataset.length());
  }
  constexpr double kLargestSpace = 4611686018427387904.0;  // 2^62, exact as a double
  const double space = std::pow(base, exponent);
  if (space > kLargestSpace) {
    context.Add(dataset.type() == "copy" ? "dataset.length" : "dataset.digits", "makes ",
                FormatBound(base), "^", FormatBound(exponent),
                " different rows; the maximum is 2^62, make it smaller");
    return;
  }
  const double trained = static_cast<double>(dataset.train_rows());
  if (trained > space) {
    context.Add("dataset.train_rows", "must be at most ", FormatBound(space),
                ", the different rows of this dataset, got ", dataset.train_rows());
    return;
  }
  if (!context.spec().has_eval() || !context.Usable({"eval"})) {
    return;
  }
  const std::vector<job::v1::EvalSet> sets = EvalSets(context.spec());
  for (size_t i = 0; i < sets.size(); ++i) {
    if (static_cast<double>(sets[i].rows()) <= space - trained) continue;
    context.Add(KeyOfSet(context, i, "rows"), "must be at most ", FormatBound(space - trained),
                ", what dataset.train_rows ", dataset.train_rows(), " leaves of ",
                FormatBound(space), " different rows, got ", sets[i].rows(),
                trained == space ? "; lower dataset.train_rows" : "");
  }
}

// Checks that exactly one key gives the prompt, and that a chat template can be there.
void CheckPrompt(RuleContext& context) {
  const job::v1::Dataset& dataset = context.spec().dataset();
  if (IsGenerated(dataset) || !context.Usable({"dataset"})) {
    return;
  }
  const bool has_messages = dataset.chat().has_messages();
  if (!dataset.has_prompt() && !has_messages) {
    context.Add("dataset.prompt", "is required but missing");
  } else if (dataset.has_prompt() && has_messages) {
    context.Add("dataset.prompt", "has no effect with dataset.chat.messages; remove one of them");
  } else if (dataset.has_chat() && context.spec().tokenizer().type() == "char") {
    context.Add("dataset.chat", "needs a chat template, which a character tokenizer does not have");
  }
}

struct TemplateText {
  std::string text;
  std::string reward_type;  // "": not a component's
};

// Template texts by key.
std::map<std::string, TemplateText> Templates(const JobSpec& spec) {
  std::map<std::string, TemplateText> templates;
  if (spec.dataset().has_prompt()) {
    templates["dataset.prompt"] = {spec.dataset().prompt(), ""};
  }
  for (const auto& [name, component] : spec.reward().components()) {
    if (component.has_text()) {
      templates[StrCat("reward.components.", name, ".text")] = {component.text(), component.type()};
    }
  }
  return templates;
}

// Checks braces, references to missing gold answers, and fields that generated or template rows
// lack.
void CheckTemplates(RuleContext& context) {
  const job::v1::Dataset& dataset = context.spec().dataset();
  const bool has_answers = IsGenerated(dataset) || dataset.has_answer();
  std::map<std::string, std::string> wanted;  // field -> key that references it
  for (const auto& [path, used] : Templates(context.spec())) {
    if (!context.Usable({path})) continue;
    const absl::StatusOr<TextTemplate> parsed = TextTemplate::Parse(used.text);
    if (!parsed.ok()) {
      context.Add(path, Message(parsed.status()));
      continue;
    }
    for (const std::string& field : parsed->fields()) {
      if (!used.reward_type.empty() && !IsRowField(used.reward_type, field)) continue;
      if (path == "dataset.prompt" || field != kAnswerField) {
        wanted.emplace(field, path);
      } else if (!has_answers && context.Usable({"dataset.type", "dataset.answer"})) {
        context.Add(path,
                    "asks for the gold answer, but rows have none; name their field in "
                    "dataset.answer");
      }
    }
  }
  if (!has_answers && context.spec().warmup().has_sft() &&
      context.Usable({"dataset.type", "dataset.answer", "warmup"})) {
    context.Add("warmup.sft", "trains on gold answers; name their field in dataset.answer");
  }
  if (IsGenerated(dataset) && context.Usable({"dataset"})) {
    for (const auto& [field, path] : wanted) {
      context.Add(path, "asks for the field '", Excerpt(field), "', but rows of dataset.type ",
                  dataset.type(), " have only {prompt} and {answer}");
    }
  }
  if (dataset.type() != "template" || !context.Usable({"dataset"})) {
    return;
  }
  if (dataset.has_answer()) {
    wanted.emplace(dataset.answer(), "dataset.answer");
  }
  for (int i = 0; i < dataset.rows_size(); ++i) {
    for (const auto& [field, path] : wanted) {
      if (!dataset.rows(i).values().contains(field)) {
        context.Add(StrCat("dataset.rows.", i), "has no field '", Excerpt(field), "', which ",
                    Excerpt(path, 120), " asks for");
      }
    }
  }
}

void CheckLengthReward(RuleContext& context, const std::string& path,
                       const job::v1::RewardComponent& component) {
  const std::string& shape = component.shape();
  const bool budget = shape == "budget";
  if (budget && component.has_max_tokens()) {
    context.Add(path + ".max_tokens", "has no effect with shape budget; remove it");
  }
  if (shape != "window" && component.has_min_tokens()) {
    context.Add(path + ".min_tokens", "has no effect with shape ", shape, "; remove it");
  }
  if (!budget && component.has_text()) {
    context.Add(path + ".text", "has no effect with shape ", shape, "; remove it");
  }
  if (budget && !component.has_text()) context.Add(path + ".text", "is required but missing");
  if (budget) return;
  if (!component.has_max_tokens()) {
    context.Add(path + ".max_tokens", "is required but missing");
  } else if (shape == "soft_overlong") {
    if (component.margin_tokens() > component.max_tokens()) {
      context.Add(path + ".margin_tokens", "must be at most max_tokens ", component.max_tokens(),
                  ", got ", component.margin_tokens());
    }
  } else if (component.min_tokens() > component.max_tokens()) {
    context.Add(path + ".min_tokens", "must be at most max_tokens ", component.max_tokens(),
                ", got ", component.min_tokens());
  }
}

void CheckReward(RuleContext& context) {
  for (const auto& [name, component] : SortedComponents(context.spec())) {
    const std::string path = StrCat("reward.components.", name);
    if (!context.Usable({path})) {
      continue;
    }
    if (!IsName(name, "_-") || name.size() > 63) {
      context.Add(path,
                  "the name of a component is at most 63 letters, digits, '_' and '-', "
                  "starting with a letter or a digit");
    }
    const std::string only_if = OnlyIfError(context.spec().reward(), name);
    if (!only_if.empty()) context.Add(path + ".only_if", only_if);
    if ((component.type() == "contains" || component.type() == "judge") && !component.has_text()) {
      context.Add(path + ".text", "is required but missing");
    } else if (component.type() == "length") {
      CheckLengthReward(context, path, component);
    }
  }
}

// Checks one dataset, and what the job does with its rows.
void CheckRowsOf(RuleContext& context) {
  CheckCharacters(context);
  CheckLengths(context);
  CheckGeneratedRows(context);
  CheckPrompt(context);
  CheckTemplates(context);
}

}  // namespace

void CheckDataRules(RuleContext& context) {
  CheckAlphabet(context);
  CheckReward(context);
  const JobSpec& spec = context.spec();
  if (spec.tasks().empty()) {
    CheckRowsOf(context);
    return;
  }
  const std::vector<job::v1::EvalSet> sets = EvalSets(spec);
  for (const std::string& task : TaskNames(spec)) {
    std::vector<size_t> own;
    for (size_t i = 0; i < sets.size(); ++i) {
      if (sets[i].task() == task) own.push_back(i);
    }
    const JobSpec only = TaskSpec(spec, task);
    RuleContext of_task(context, only, task, std::move(own));
    CheckRowsOf(of_task);
  }
}

}  // namespace freshet
