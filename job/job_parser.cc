#include "job/job_parser.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "freshet/job/v1/key_options.pb.h"
#include "job/eval_sets.h"
#include "job/job_kind.h"
#include "job/job_overrides.h"
#include "job/job_validator.h"
#include "job/key_rules.h"
#include "job/policies.h"
#include "job/reward_types.h"
#include "job/scalar_value.h"
#include "job/team_rules.h"
#include "job/yaml_tree.h"

namespace freshet {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;

std::string KindName(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return StrCat("'", Excerpt(node.text), "'");
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a block of keys";
  }
  return "nothing";
}

// Copies a YAML tree into a message and collects errors.
class JobReader {
 public:
  explicit JobReader(JobResult& result) : result_(result) {}

  // Requires: `block` is a map.
  void ReadBlock(const YamlNode& block, const std::string& path, ProtoMessage& message) {
    if (const FieldDescriptor* map = InlineMap(*message.GetDescriptor())) {
      ReadMap(block, path, *map, message);
      return;
    }
    std::map<std::string, int> seen;
    for (const YamlEntry& entry : block.entries) {
      const std::string key_path = path.empty() ? entry.key : StrCat(path, ".", entry.key);
      if (!CheckNew(entry, key_path, seen)) continue;
      result_.places.Record(key_path, entry.line);
      const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(entry.key);
      if (field == nullptr) {
        AddError(entry.line, key_path,
                 StrCat("unknown key; ", UnknownKeyAdvice(entry.key, *message.GetDescriptor())));
      } else {
        ReadField(entry, key_path, *field, message);
      }
    }
  }

 private:
  void AddError(int line, const std::string& path, std::string message) {
    if (result_.errors.size() < kMaxErrors) {
      result_.errors.push_back(result_.places.AtLine(line, path, std::move(message)));
    }
  }

  bool CheckNew(const YamlEntry& entry, const std::string& path, std::map<std::string, int>& seen) {
    const auto [first, is_new] = seen.emplace(entry.key, entry.line);
    if (!is_new) {
      const std::string where =
          first->second > 0 ? StrCat("first in line ", first->second) : "also by --set";
      AddError(entry.line, path, StrCat("is given twice, ", where, "; remove one"));
    }
    return is_new;
  }

  void ReadField(const YamlEntry& entry, const std::string& path, const FieldDescriptor& field,
                 ProtoMessage& message) {
    const YamlNode& value = entry.value;
    const bool is_scalar =
        !field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
    if (is_scalar) {
      ReadScalar(value, entry.line, path, field, message);
    } else if (value.kind == YamlNode::Kind::kNull) {
      return;
    } else if (field.is_map()) {
      if (Expect(value, YamlNode::Kind::kMap, entry.line, path, "a map of names")) {
        ReadMap(value, path, field, message);
      }
    } else if (field.is_repeated()) {
      if (Expect(value, YamlNode::Kind::kList, entry.line, path, "a list")) {
        ReadList(value, path, field, message);
      }
    } else if (value.kind == YamlNode::Kind::kList && !OptionsOf(field).not_a_list().empty()) {
      AddError(entry.line, path, OptionsOf(field).not_a_list());
    } else if (ExpectBlock(value, entry.line, path, *field.message_type())) {
      ReadBlock(value, path, *message.GetReflection()->MutableMessage(&message, &field));
    }
  }

  bool Expect(const YamlNode& value, YamlNode::Kind kind, int line, const std::string& path,
              const std::string& what) {
    if (value.kind == kind) {
      return true;
    }
    AddError(line, path, StrCat("expected ", what, ", got ", KindName(value)));
    return false;
  }

  bool ExpectBlock(const YamlNode& value, int line, const std::string& path,
                   const google::protobuf::Descriptor& type) {
    return Expect(value, YamlNode::Kind::kMap, line, path,
                  InlineMap(type) != nullptr
                      ? "a map of field to text"
                      : StrCat("a block with the keys ", absl::StrJoin(KeyNames(type), ", ")));
  }

  void ReadMap(const YamlNode& map, const std::string& path, const FieldDescriptor& field,
               ProtoMessage& message) {
    const FieldDescriptor& value_field = *field.message_type()->map_value();
    std::map<std::string, int> seen;
    for (const YamlEntry& entry : map.entries) {
      const std::string key_path = StrCat(path, ".", entry.key);
      if (!CheckNew(entry, key_path, seen)) continue;
      result_.places.Record(key_path, entry.line);
      // Reflection exposes a map field as a list of entries with `key` and `value`.
      ProtoMessage& added = *message.GetReflection()->AddMessage(&message, &field);
      added.GetReflection()->SetString(&added, field.message_type()->map_key(), entry.key);
      if (value_field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        ReadScalar(entry.value, entry.line, key_path, value_field, added);
      } else if (ExpectBlock(entry.value, entry.line, key_path, *value_field.message_type())) {
        ReadBlock(entry.value, key_path,
                  *added.GetReflection()->MutableMessage(&added, &value_field));
      }
    }
  }

  void ReadList(const YamlNode& list, const std::string& path, const FieldDescriptor& field,
                ProtoMessage& message) {
    for (size_t i = 0; i < list.items.size(); ++i) {
      const YamlNode& item = list.items[i];
      const std::string item_path = StrCat(path, ".", i);
      result_.places.Record(item_path, item.line);
      if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        ReadScalar(item, item.line, item_path, field, message);
      } else if (ExpectBlock(item, item.line, item_path, *field.message_type())) {
        ReadBlock(item, item_path, *message.GetReflection()->AddMessage(&message, &field));
      }
    }
  }

  void ReadScalar(const YamlNode& value, int line, const std::string& path,
                  const FieldDescriptor& field, ProtoMessage& message) {
    if (value.kind == YamlNode::Kind::kNull) {
      AddError(line, path, "has no value; give one or remove the key");
      return;
    }
    const bool is_scalar = value.kind == YamlNode::Kind::kScalar;
    const bool is_quoted_number =
        value.quoted && field.cpp_type() != FieldDescriptor::CPPTYPE_STRING;
    if (is_scalar && !is_quoted_number && StoreScalar(value.text, field, message)) return;
    AddError(line, path,
             StrCat("expected ", ScalarTypeName(field.cpp_type()), ", got ",
                    is_quoted_number ? "the text " : "", KindName(value),
                    is_quoted_number ? "; remove the quotes" : ""));
  }

  JobResult& result_;
};

void FillDefaults(ProtoMessage& message);

void FillField(const FieldDescriptor& field, ProtoMessage& message) {
  const Reflection& reflection = *message.GetReflection();
  const job::v1::KeyOptions& options = OptionsOf(field);
  if (field.is_repeated()) {
    if (field.is_map() &&
        field.message_type()->map_value()->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
        ProtoMessage& entry = *reflection.MutableRepeatedMessage(&message, &field, i);
        FillDefaults(
            *entry.GetReflection()->MutableMessage(&entry, field.message_type()->map_value()));
      }
    }
  } else if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    if (!reflection.HasField(message, &field) && options.has_default_()) {
      StoreScalar(options.default_(), field, message);
    }
  } else if (reflection.HasField(message, &field) ||
             (!options.optional_block() && !options.required())) {
    ProtoMessage& block = *reflection.MutableMessage(&message, &field);
    if (!options.as_written()) {
      FillDefaults(block);
    }
  }
}

void FillDefaults(ProtoMessage& message) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    if (Applies(message, *type.field(i))) {
      FillField(*type.field(i), message);
    }
  }
}

constexpr int64_t kMaxInflightGroups = 1048576;  // maximum of rollout.max_inflight_groups
constexpr int64_t kGenerateStaleness = 8;

bool IsWithin(int64_t value, int64_t least, int64_t most) {
  return value >= least && value <= most;
}

// Versions are equal in such a job, so their age matters only for how far engines may be ahead.
// Between two publications they stay at least half of the bound ahead.
void FillGenerateDefaults(JobSpec& spec) {
  if (!Generates(spec)) return;
  job::v1::Staleness& staleness = *spec.mutable_staleness();
  if (!staleness.has_max()) staleness.set_max(kGenerateStaleness);
  if (!spec.weight_sync().has_every_steps() && IsWithin(staleness.max(), 0, 1024)) {
    spec.mutable_weight_sync()->set_every_steps(std::max<int64_t>(staleness.max() / 2, 1));
  }
}

void FillModelConfig(job::v1::ModelConfig& config) {
  const int64_t heads = config.num_attention_heads();
  if (!IsWithin(heads, 1, 1024)) {
    return;
  }
  if (!config.has_num_key_value_heads()) {
    config.set_num_key_value_heads(heads);
  }
  if (!config.has_head_dim() && config.hidden_size() >= heads &&
      config.hidden_size() % heads == 0) {
    config.set_head_dim(config.hidden_size() / heads);
  }
}

// Fills in the settings of the evaluation sets, or of the only evaluation.
void FillEval(JobSpec& spec) {
  const std::vector<job::v1::EvalSet> sets = EvalSets(spec);
  const std::vector<ConfigError> errors = CheckKeys(spec, KeyPlaces(), {});
  if (sets.empty() || Concerns(errors, "eval") || Concerns(errors, "rollout")) return;
  job::v1::Eval& eval = *spec.mutable_eval();
  if (!eval.sets().empty() || !spec.tasks().empty()) {
    *eval.mutable_sets() = {sets.begin(), sets.end()};
    return;
  }
  eval.set_name(sets.front().name());
  eval.set_temperature(sets.front().temperature());
  eval.set_min_p(sets.front().min_p());
  eval.set_max_new_tokens(sets.front().max_new_tokens());
}

// Fills defaults that depend on other keys. Skips those whose inputs are out of range, so that each
// mistake is reported once.
void FillDerived(JobSpec& spec) {
  job::v1::Rollout& rollout = *spec.mutable_rollout();
  if (!rollout.has_max_inflight_groups() && IsWithin(spec.staleness().max(), 0, 1024) &&
      IsWithin(spec.prompts_per_step(), 1, 65536)) {
    rollout.set_max_inflight_groups(
        std::min(kMaxInflightGroups, (spec.staleness().max() + 1) * spec.prompts_per_step()));
  }
  FillEval(spec);
  if (spec.has_environment() && spec.environment().type() != "openai_agent" &&
      !spec.environment().has_max_turn_tokens() && IsWithin(rollout.max_new_tokens(), 1, 1048576)) {
    spec.mutable_environment()->set_max_turn_tokens(rollout.max_new_tokens());
  }
  for (auto& [name, component] : *spec.mutable_reward()->mutable_components()) {
    if ((component.type() == "exact_match" || component.type() == "numeric") &&
        !component.has_text()) {
      component.set_text("{answer}");
    }
    if (component.type() == "code" && !component.has_text()) component.set_text("{tests}");
    if (IsRewardService(component.type()) && !component.has_timeout_ms() &&
        IsWithin(spec.reward().timeout_ms(), 1, 600000)) {
      component.set_timeout_ms(spec.reward().timeout_ms());
    }
  }
  if (spec.model().has_config()) {
    FillModelConfig(*spec.mutable_model()->mutable_config());
  }
}

// The jobs of the file, or that of `policy`, or the file's errors as a whole.
JobTrees ReadTrees(std::string_view yaml_text, const std::vector<std::string>& overrides,
                   const KeyPlaces& places,
                   const std::optional<std::string>& policy = std::nullopt) {
  JobTrees failed;
  YamlTree tree = ParseYamlTree(yaml_text);
  if (tree.error) {
    failed.errors.push_back(places.AtLine(tree.error->line, "", tree.error->message));
  } else if (tree.root.kind == YamlNode::Kind::kNull) {
    failed.errors.push_back(places.AtLine(
        0, "",
        "is empty; a job file has at least name, model, dataset, rollout, reward, trainer "
        "and optimizer (freshet init writes one)"));
  } else if (tree.root.kind != YamlNode::Kind::kMap) {
    failed.errors.push_back(places.AtLine(
        tree.root.line, "",
        StrCat("expected a block of keys such as 'name: ...', got ", KindName(tree.root))));
  }
  if (!failed.errors.empty()) return failed;
  return ExpandPolicies(std::move(tree.root), overrides, places, policy);
}

JobResult ReadTree(JobTree tree, const KeyPlaces& places) {
  JobResult result;
  result.policy = tree.policy;
  result.places = places;
  if (!tree.policy.empty()) {
    result.places.SetBlock(StrCat(kPolicies, ".", tree.policy), std::move(tree.own));
  }
  result.errors = ApplyOverrides(tree.overrides, tree.root);
  JobReader(result).ReadBlock(tree.root, "", result.spec);
  ResolveJob(result.spec);
  std::vector<ConfigError> more = ValidateJob(result.spec, result.places, result.errors);
  result.errors.insert(result.errors.end(), std::make_move_iterator(more.begin()),
                       std::make_move_iterator(more.end()));
  SortConfigErrors(result.errors);
  return result;
}

bool SameError(const ConfigError& a, const ConfigError& b) {
  return a.line == b.line && a.file == b.file && a.path == b.path && a.message == b.message &&
         a.block == b.block;
}

// Adds the errors of the file's jobs. One that all of them have is an error of the file; others
// are those of a policy.
void AddErrors(JobFile& file) {
  for (const JobResult& job : file.jobs) {
    for (ConfigError error : job.errors) {
      const auto is_same = [&error](const ConfigError& other) { return SameError(error, other); };
      const bool in_all = std::ranges::all_of(file.jobs, [&is_same](const JobResult& other) {
        return std::ranges::any_of(other.errors, is_same);
      });
      if (in_all && std::ranges::any_of(file.errors, is_same)) continue;
      if (!in_all) error.block = StrCat(kPolicies, ".", job.policy);
      file.errors.push_back(std::move(error));
    }
  }
}

}  // namespace

void ResolveJob(JobSpec& spec) {
  FillGenerateDefaults(spec);
  FillDefaults(spec);
  FillDerived(spec);
}

JobResult ParseJob(std::string_view yaml_text, const std::string& file_name,
                   const std::vector<std::string>& overrides, const std::string& policy) {
  const KeyPlaces places(file_name);
  JobTrees trees = ReadTrees(yaml_text, overrides, places, policy);
  JobResult failed;
  failed.places = places;
  failed.errors = std::move(trees.errors);
  if (!failed.errors.empty()) return failed;
  if (!trees.jobs.empty()) return ReadTree(std::move(trees.jobs.front()), places);
  failed.errors.push_back(places.AtLine(
      0, kPolicies,
      policy.empty() ? "the file has several jobs, and here only one of them can be used"
                     : StrCat("the file has no policy '", Excerpt(policy), "'")));
  return failed;
}

JobFile ParseJobFile(std::string_view yaml_text, const std::string& file_name,
                     const std::vector<std::string>& overrides) {
  const KeyPlaces places(file_name);
  JobTrees trees = ReadTrees(yaml_text, overrides, places);
  JobFile file;
  file.errors = std::move(trees.errors);
  for (JobTree& tree : trees.jobs) file.jobs.push_back(ReadTree(std::move(tree), places));
  CheckTeamRules(file.jobs);
  AddErrors(file);
  SortConfigErrors(file.errors);
  return file;
}

absl::StatusOr<std::vector<JobResult>> ReadJobs(const std::string& path,
                                                const std::vector<std::string>& overrides) {
  constexpr uint64_t kMaxBytes = 4 << 20;
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  JobFile file = ParseJobFile(text, path, overrides);
  if (!file.errors.empty()) return InvalidArgument(FormatConfigErrors(file.errors));
  return std::move(file.jobs);
}

}  // namespace freshet
