#include "controller/jobs/plan/service_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "base/str_cat.h"
#include "env_workers/environment.h"
#include "services/reward/worker/reward_setup.h"

namespace freshet {
namespace {

// Splits a scorer's "KEY is bad" or "KEY: is bad", where KEY is a key of a component.
ConfigError ScorerError(const std::string& component, std::string_view text,
                        const KeyPlaces& places) {
  const size_t end = text.find_first_of(": ");
  const std::string key(text.substr(0, end));
  const auto* fields = job::v1::RewardComponent::descriptor();
  if (end == std::string_view::npos || fields->FindFieldByName(key) == nullptr) {
    return places.At(component, std::string(text));
  }
  text.remove_prefix(text.find_first_not_of(": ", end));
  return places.At(StrCat(component, ".", key), std::string(text));
}

void CheckScorers(const JobSpec& spec, const KeyPlaces& places, std::vector<ConfigError>& errors) {
  const std::map<std::string, job::v1::RewardComponent> components(
      spec.reward().components().begin(), spec.reward().components().end());
  for (const auto& [name, component] : components) {
    // One at a time, to get the error of each.
    job::v1::Reward alone;
    (*alone.mutable_components())[name] = component;
    (*alone.mutable_components())[name].clear_only_if();  // checked by the job's rules
    const absl::Status status = MakeCompositeScorer(alone, UnconnectedScorers()).status();
    if (status.ok()) continue;
    const std::string path = StrCat("reward.components.", name);
    std::string text = Message(status);
    if (text.starts_with(path + ".")) text.erase(0, path.size() + 1);
    errors.push_back(ScorerError(path, text, places));
  }
}

void CheckEnvironment(const JobSpec& spec, const KeyPlaces& places,
                      std::vector<ConfigError>& errors) {
  const std::string& type = spec.environment().type();
  if (!spec.has_environment() || type == "grpc" || type == "openai_agent") return;
  const EnvironmentRegistry& registry = BuiltinEnvironments();
  const EnvironmentOptions options(spec.environment().options().begin(),
                                   spec.environment().options().end());
  const auto add = [&](const absl::Status& status, const std::string& otherwise) {
    // "options.NAME: is bad"
    const std::string text = Message(status);
    const size_t colon = text.find(": ");
    const bool placed = text.starts_with("options.") && colon != std::string::npos;
    errors.push_back(placed
                         ? places.At("environment." + text.substr(0, colon), text.substr(colon + 2))
                         : places.At(otherwise, text));
  };
  const auto known = registry.types().find(type);
  if (known == registry.types().end()) {
    add(registry.CheckOptions(type, {}), "environment.type");
    return;
  }
  EnvironmentOptions good;
  for (const auto& [name, value] : options) {
    const std::vector<std::string>& names = known->second.options;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      good[name] = value;
    } else {
      add(registry.CheckOptions(type, {{name, value}}), "environment.options");
    }
  }
  const absl::Status status = registry.CheckOptions(type, good);
  if (!status.ok()) add(status, "environment.options");
}

}  // namespace

std::vector<ConfigError> CheckServices(const JobSpec& spec, const KeyPlaces& places) {
  std::vector<ConfigError> errors;
  CheckScorers(spec, places, errors);
  CheckEnvironment(spec, places, errors);
  return errors;
}

}  // namespace freshet
