#include "job/policies.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "job/job_overrides.h"

namespace freshet {
namespace {

constexpr std::string_view kBlockPrefix = "policies.";

// Null if there is none.
const YamlEntry* FindEntry(const YamlNode& map, std::string_view key) {
  const auto found = std::ranges::find(map.entries, key, &YamlEntry::key);
  return found == map.entries.end() ? nullptr : &*found;
}

bool IsPolicyName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Merges a policy's map into the file's. Keys that are given twice stay, for the reader to find.
void Merge(const YamlNode& overlay, const std::string& path, YamlNode& base,
           std::set<std::string>& own) {
  std::map<std::string_view, size_t> places;  // of the base's keys that are not merged yet
  for (size_t i = 0; i < base.entries.size(); ++i) places.emplace(base.entries[i].key, i);
  std::vector<YamlEntry> added;
  std::vector<std::pair<size_t, const YamlEntry*>> changed;
  for (const YamlEntry& entry : overlay.entries) {
    const auto found = places.find(entry.key);
    if (found == places.end()) {
      own.insert(path + entry.key);
      added.push_back(entry);
    } else {
      changed.emplace_back(found->second, &entry);
      places.erase(found);
    }
  }
  for (const auto& [place, entry] : changed) {
    YamlEntry& in_base = base.entries[place];
    if (in_base.value.kind == YamlNode::Kind::kMap && entry->value.kind == YamlNode::Kind::kMap) {
      Merge(entry->value, path + entry->key + ".", in_base.value, own);
    } else {
      own.insert(path + entry->key);
      in_base = *entry;
    }
  }
  base.entries.insert(base.entries.end(), std::make_move_iterator(added.begin()),
                      std::make_move_iterator(added.end()));
}

class Expansion {
 public:
  Expansion(YamlNode root, const KeyPlaces& places) : places_(places), file_(std::move(root)) {}

  JobTrees Expand(const std::vector<std::string>& overrides,
                  const std::optional<std::string>& policy) {
    const auto block = std::ranges::find(file_.entries, kPolicies, &YamlEntry::key);
    const YamlEntry policies = std::move(*block);
    block->key = kPolicies;
    std::erase_if(file_.entries, [](const YamlEntry& entry) { return entry.key == kPolicies; });
    CheckFile();
    CheckPolicies(policies);
    if (!trees_.errors.empty()) return std::move(trees_);
    const std::vector<std::string> names = Names(policies.value);
    const std::map<std::string, std::vector<std::string>> by_policy =
        Sort(overrides, names, policy.has_value());
    for (size_t i = 0; i < names.size(); ++i) {
      if (policy && names[i] != *policy) continue;
      const bool is_last = policy || i + 1 == names.size();
      JobTree job{names[i], is_last ? std::move(file_) : file_, {}, by_policy.at(names[i])};
      Merge(policies.value.entries[i].value, "", job.root, job.own);
      NameJob(policies.line, job);
      trees_.jobs.push_back(std::move(job));
    }
    return std::move(trees_);
  }

 private:
  void Add(int line, std::string path, std::string message) {
    trees_.errors.push_back(places_.AtLine(line, std::move(path), std::move(message)));
  }

  void CheckFile() {
    if (const YamlEntry* team = FindEntry(file_, "team")) {
      Add(team->line, "team", "is set to the file's name where there are policies; remove it");
    }
  }

  void CheckPolicies(const YamlEntry& policies) {
    if (policies.value.kind != YamlNode::Kind::kMap) {
      Add(policies.line, kPolicies, "expected a map of names, each with the keys of its job");
      return;
    }
    const size_t number = policies.value.entries.size();
    if (number < kMinPolicies || number > kMaxPolicies) {
      Add(policies.line, kPolicies,
          StrCat("want ", kMinPolicies, " to ", kMaxPolicies, " policies, got ", number,
                 number == 1 ? "; a job with one needs no such block" : ""));
      return;
    }
    std::set<std::string> seen;
    for (const YamlEntry& policy : policies.value.entries) CheckPolicy(policy, seen);
  }

  void CheckPolicy(const YamlEntry& policy, std::set<std::string>& seen) {
    const std::string path = StrCat(kBlockPrefix, policy.key);
    if (!seen.insert(policy.key).second) {
      Add(policy.line, path, "is given twice; remove one");
    } else if (!IsPolicyName(policy.key)) {
      Add(policy.line, path, "is no name of a policy; use the letters a to z, digits and '-'");
    } else if (policy.value.kind != YamlNode::Kind::kMap &&
               policy.value.kind != YamlNode::Kind::kNull) {
      Add(policy.line, path, "expected a block with the keys that differ from those of the file");
    }
    for (const char* key : {"name", "team", kPolicies}) {
      const YamlEntry* entry = FindEntry(policy.value, key);
      if (entry == nullptr) continue;
      Add(entry->line, StrCat(path, ".", key),
          StrCat("is a key of the whole file; remove it (the job's name is NAME-", policy.key,
                 ")"));
    }
  }

  static std::vector<std::string> Names(const YamlNode& policies) {
    std::vector<std::string> names;
    names.reserve(policies.entries.size());
    for (const YamlEntry& policy : policies.entries) names.push_back(policy.key);
    return names;
  }

  // The overrides of each policy. Those of `name` are applied to the file.
  std::map<std::string, std::vector<std::string>> Sort(const std::vector<std::string>& overrides,
                                                       const std::vector<std::string>& names,
                                                       bool may_set_team) {
    std::map<std::string, std::vector<std::string>> by_policy;
    for (const std::string& name : names) by_policy[name];
    std::vector<std::string> of_file;
    for (const std::string& text : overrides) {
      PolicyOverride one = ReadPolicyOverride(text, names);
      const bool sets_team = may_set_team && one.key == "team";
      if (!one.error.empty() && !sets_team) {
        Add(KeyPlaces::kFromSet, one.key, std::move(one.error));
      } else if (one.key == "name") {
        of_file.push_back(text);
      } else if (one.policy.empty()) {
        for (auto& [name, mine] : by_policy) mine.push_back(text);
      } else {
        by_policy[one.policy].push_back(std::move(one.text));
      }
    }
    for (ConfigError& error : ApplyOverrides(of_file, file_)) {
      trees_.errors.push_back(std::move(error));
    }
    return by_policy;
  }

  // A file without a name has one error, which the reader finds.
  static void NameJob(int line, JobTree& job) {
    for (YamlEntry& entry : job.root.entries) {
      if (entry.key != "name" || entry.value.kind != YamlNode::Kind::kScalar) continue;
      YamlNode team = entry.value;
      team.quoted = true;
      entry.value.text += StrCat("-", job.policy);
      job.root.entries.push_back({"team", line, std::move(team)});
      return;
    }
  }

  const KeyPlaces& places_;
  YamlNode file_;
  JobTrees trees_;
};

}  // namespace

JobTrees ExpandPolicies(YamlNode root, const std::vector<std::string>& overrides,
                        const KeyPlaces& places, const std::optional<std::string>& policy) {
  if (FindEntry(root, kPolicies) != nullptr) {
    return Expansion(std::move(root), places).Expand(overrides, policy);
  }
  JobTrees trees;
  if (policy.value_or("").empty()) trees.jobs.push_back({"", std::move(root), {}, overrides});
  return trees;
}

PolicyOverride ReadPolicyOverride(const std::string& text, const std::vector<std::string>& names) {
  PolicyOverride one{"", text.substr(0, text.find('=')), text, ""};
  const std::string& key = one.key;
  std::string own = key;
  if (key.starts_with(kBlockPrefix)) {
    const size_t dot = key.find('.', kBlockPrefix.size());
    one.policy = key.substr(kBlockPrefix.size(), dot - kBlockPrefix.size());
    if (dot == std::string::npos || dot + 1 == text.size() ||
        std::ranges::find(names, one.policy) == names.end()) {
      one.error = StrCat("is no key of a policy; give policies.POLICY.KEY=VALUE, POLICY one of ",
                         absl::StrJoin(names, ", "));
      return one;
    }
    own = key.substr(dot + 1);
    one.text = text.substr(dot + 1);
    if (own == "name") one.error = "is a key of the whole file; give name=NAME";
  }
  if (own == "team") {
    one.error = "is set to the file's name where there are policies; remove it";
  }
  return one;
}

}  // namespace freshet
