#ifndef FRESHET_JOB_RULE_CONTEXT_H_
#define FRESHET_JOB_RULE_CONTEXT_H_

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "job/config_error.h"
#include "job/job_schema.h"
#include "job/key_rules.h"

namespace freshet {

// Input and output of the rules between keys: the job, and the errors found so far. A rule is
// skipped if a key it reads has an error. Confined to one thread.
class RuleContext {
 public:
  RuleContext(const JobSpec& spec, const KeyPlaces& places, std::vector<ConfigError>& errors)
      : spec_(spec), places_(places), errors_(errors) {}

  // Of the rules of one task: `only` is its TaskSpec, and `sets` are the numbers of its evaluation
  // sets in the whole job. Rules use the paths of a job without `tasks`.
  RuleContext(const RuleContext& whole, const JobSpec& only, const std::string& task,
              std::vector<size_t> sets)
      : spec_(only),
        places_(whole.places_),
        errors_(whole.errors_),
        block_(StrCat("tasks.", task, ".")),
        sets_(std::move(sets)) {}

  const JobSpec& spec() const { return spec_; }

  bool Usable(std::initializer_list<std::string> paths) const {
    return std::none_of(paths.begin(), paths.end(),
                        [&](const std::string& path) { return Concerns(errors_, Place(path)); });
  }

  // The number in the whole job of evaluation set `set` of spec().
  size_t SetNumber(size_t set) const { return block_.empty() ? set : sets_[set]; }

  // An error that several tasks have is added once.
  template <typename... Args>
  void Add(const std::string& path, const Args&... message) {
    ConfigError error = places_.At(Place(path), StrCat(message...));
    const auto same = [&error](const ConfigError& other) {
      return other.path == error.path && other.message == error.message;
    };
    if (errors_.size() < kMaxTotal && std::none_of(errors_.begin(), errors_.end(), same)) {
      errors_.push_back(std::move(error));
    }
  }

 private:
  std::string Place(const std::string& path) const {
    return path == "dataset" || path.starts_with("dataset.") ? block_ + path : path;
  }

  // Covers parsing, single-key checks and the rules between keys.
  static constexpr size_t kMaxTotal = 3 * kMaxErrors;

  const JobSpec& spec_;
  const KeyPlaces& places_;
  std::vector<ConfigError>& errors_;
  const std::string block_;  // of a task's dataset; "" for the whole job
  const std::vector<size_t> sets_;
};

// Whether `text` starts with a letter or digit and otherwise consists of letters, digits and
// `punctuation`.
bool IsName(std::string_view text, std::string_view punctuation);

// Checks what the job's tasks share.
void CheckTaskRules(RuleContext& context);
// Checks dataset, tokenizer and reward, and how they fit together, of each task.
void CheckDataRules(RuleContext& context);
// Key of a setting of EvalSets()[set]: "eval.rows", or "eval.sets.0.rows" if the job has eval.sets.
std::string EvalSetKey(const JobSpec& spec, size_t set, std::string_view setting);

// Checks the evaluation sets.
void CheckEvalRules(RuleContext& context);
// Checks what the inference server of rollout.engine cannot do.
void CheckEngineRules(RuleContext& context);
// Checks what has no meaning for the job's kind.
void CheckGenerateRules(RuleContext& context);
// Checks environment, reward services and the rollout pool.
void CheckServiceRules(RuleContext& context);

}  // namespace freshet

#endif  // FRESHET_JOB_RULE_CONTEXT_H_
