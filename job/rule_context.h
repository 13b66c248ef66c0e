#ifndef FRESHET_JOB_RULE_CONTEXT_H_
#define FRESHET_JOB_RULE_CONTEXT_H_

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "job/config_error.h"
#include "job/job_schema.h"
#include "job/key_rules.h"

namespace freshet {

// What the rules between keys work with: the job, and the errors found so far. A rule says nothing
// while a key that it reads is itself at error. Confined to one thread.
class RuleContext {
 public:
  RuleContext(const JobSpec& spec, const KeyPlaces& places, std::vector<ConfigError>& errors)
      : spec_(spec), places_(places), errors_(errors) {}

  const JobSpec& spec() const { return spec_; }

  bool Usable(std::initializer_list<std::string> paths) const {
    return std::none_of(paths.begin(), paths.end(),
                        [&](const std::string& path) { return Concerns(errors_, path); });
  }

  template <typename... Args>
  void Add(const std::string& path, const Args&... message) {
    if (errors_.size() < kMaxTotal) {
      errors_.push_back(places_.At(path, StrCat(message...)));
    }
  }

 private:
  // Of reading, of the keys one by one, and of the rules between them.
  static constexpr size_t kMaxTotal = 3 * kMaxErrors;

  const JobSpec& spec_;
  const KeyPlaces& places_;
  std::vector<ConfigError>& errors_;
};

// `text` is not empty, starts with a letter or a digit, and is else letters, digits and
// `punctuation`.
bool IsName(std::string_view text, std::string_view punctuation);

// Rules about dataset, tokenizer and reward, and how they fit together.
void CheckDataRules(RuleContext& context);
// Rules about what runs beside the trainer: environment, reward services, pool of rollouts.
void CheckServiceRules(RuleContext& context);

}  // namespace freshet

#endif  // FRESHET_JOB_RULE_CONTEXT_H_
