#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/http_address.h"
#include "base/str_cat.h"
#include "job/reward_types.h"
#include "job/rule_context.h"
#include "job/tasks.h"

namespace freshet {
namespace {

constexpr size_t kMaxOptionBytes = 4096;
// As many as a stored response may have (datastore/blob/trajectory_blob.h).
constexpr int64_t kMaxSampleTokens = int64_t{1} << 24;

// HOST:PORT with port 1 to 65535; an IPv6 host must be in brackets.
bool IsAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  for (const char c : host) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte >= 0x7F || c == '/') return false;
  }
  if (host.find(':') != std::string_view::npos && (host.front() != '[' || host.back() != ']')) {
    return false;
  }
  const std::string_view digits = text.substr(colon + 1);
  int port = 0;
  for (const char c : digits) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0 || port > 65535) return false;
    port = 10 * port + (c - '0');
  }
  return !digits.empty() && digits[0] != '0' && port <= 65535;
}

void CheckAddress(RuleContext& context, const std::string& path, const std::string& address) {
  if (!context.Usable({path}) || IsAddress(address)) return;
  context.Add(path, "must be HOST:PORT, as in \"localhost:7100\", got '", Excerpt(address), "'");
}

void CheckAgentAddress(RuleContext& context, const std::string& path, const std::string& address) {
  if (!context.Usable({path})) return;
  const std::optional<HttpAddress> parsed = ParseHttpAddress(address);
  if (parsed.has_value() && IsAddress(parsed->server)) return;
  context.Add(path, "must be HOST:PORT or http://HOST:PORT/PATH (https is not supported), got '",
              Excerpt(address), "'");
}

void CheckConversations(RuleContext& context) {
  const JobSpec& spec = context.spec();
  const job::v1::Environment& environment = spec.environment();
  if (environment.max_conversations() <= 1 ||
      !context.Usable({"environment.max_conversations", "environment.observations"})) {
    return;
  }
  if (environment.type() == "grpc" && environment.observations() != "messages") {
    context.Add("environment.max_conversations",
                "above 1 needs environment.observations messages: only messages can begin another "
                "conversation");
  }
  const int64_t most = kMaxSampleTokens / environment.max_conversations();
  if (context.Usable({"rollout.max_new_tokens"}) && spec.rollout().max_new_tokens() > most) {
    context.Add("environment.max_conversations", "times rollout.max_new_tokens ",
                spec.rollout().max_new_tokens(), " must be at most ", kMaxSampleTokens,
                " tokens, the most of a sample, got ", environment.max_conversations());
  }
}

void CheckEnvironment(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (!spec.has_environment()) return;
  const job::v1::Environment& environment = spec.environment();
  if (environment.type() == "grpc") {
    CheckAddress(context, "environment.address", environment.address());
  }
  if (environment.type() == "openai_agent") {
    CheckAgentAddress(context, "environment.address", environment.address());
  }
  if (context.Usable({"environment.observations"}) && environment.observations() == "messages" &&
      !AnyDataset(spec).has_chat()) {
    context.Add(
        "environment.observations",
        "messages needs the block dataset.chat, which renders prompts with the model's chat "
        "template");
  }
  if (context.Usable({"environment.max_turn_tokens", "rollout.max_new_tokens"}) &&
      environment.max_turn_tokens() > spec.rollout().max_new_tokens()) {
    context.Add("environment.max_turn_tokens", "must be at most rollout.max_new_tokens ",
                spec.rollout().max_new_tokens(), ", the tokens of the whole episode, got ",
                environment.max_turn_tokens());
  }
  CheckConversations(context);
  const std::map<std::string, std::string> options(environment.options().begin(),
                                                   environment.options().end());
  for (const auto& [name, value] : options) {
    const std::string path = StrCat("environment.options.", name);
    if (!context.Usable({path})) continue;
    if (!IsName(name, "_-") || name.size() > 63) {
      context.Add(path,
                  "the name of an option is at most 63 letters, digits, '_' and '-', starting "
                  "with a letter or a digit");
    } else if (value.size() > kMaxOptionBytes) {
      context.Add(path, "its length in bytes must be at most ", kMaxOptionBytes, ", got ",
                  value.size());
    }
  }
}

void CheckRewardServices(RuleContext& context) {
  const JobSpec& spec = context.spec();
  const std::map<std::string, job::v1::RewardComponent> components(
      spec.reward().components().begin(), spec.reward().components().end());
  for (const auto& [name, component] : components) {
    const std::string path = StrCat("reward.components.", name);
    if (component.type() == "environment" && !spec.has_environment() &&
        context.Usable({path + ".type", "environment"})) {
      context.Add(path + ".type",
                  "environment is the reward that an environment gives, but the job has none; add "
                  "the block environment");
    }
    if (!IsRewardService(component.type())) continue;
    if (component.has_address()) CheckAddress(context, path + ".address", component.address());
    if (component.has_timeout_ms() && context.Usable({path + ".timeout_ms", "reward.timeout_ms"}) &&
        component.timeout_ms() > spec.reward().timeout_ms()) {
      context.Add(path + ".timeout_ms", "must be at most reward.timeout_ms ",
                  spec.reward().timeout_ms(), ", the time for one sample, got ",
                  component.timeout_ms());
    }
    if (component.type() == "code" && component.has_test_timeout_ms() &&
        context.Usable({path + ".timeout_ms", path + ".test_timeout_ms"}) &&
        component.timeout_ms() <= component.test_timeout_ms()) {
      context.Add(path + ".timeout_ms", "must be above test_timeout_ms ",
                  component.test_timeout_ms(), ", the time of one test, got ",
                  component.timeout_ms(), "; raise reward.timeout_ms");
    }
    const std::map<std::string, std::string> criteria(component.criteria().begin(),
                                                      component.criteria().end());
    for (const auto& [criterion, wanted] : criteria) {
      const std::string key = StrCat(path, ".criteria.", criterion);
      if (!context.Usable({key})) continue;
      if (!IsName(criterion, "_-") || criterion.size() > 63 || criterion == "reason") {
        context.Add(key,
                    "the name of a criterion is at most 63 letters, digits, '_' and '-', starting "
                    "with a letter or a digit, and not 'reason'");
      } else if (wanted.empty() || wanted.size() > kMaxOptionBytes) {
        context.Add(key, "its length in bytes must be 1 to ", kMaxOptionBytes, ", got ",
                    wanted.size());
      }
    }
    if (component.has_function() && context.Usable({path + ".function"}) &&
        !IsName(component.function(), "_-.")) {
      context.Add(path + ".function",
                  "must be letters, digits, '_', '-' and '.', starting with a letter or a digit; ",
                  "got '", Excerpt(component.function()), "'");
    }
  }
}

}  // namespace

void CheckServiceRules(RuleContext& context) {
  CheckEnvironment(context);
  CheckRewardServices(context);
  if (context.Usable({"pool"}) && !IsName(context.spec().pool(), "_-")) {
    context.Add("pool", "must be letters, digits, '_' and '-', starting with a letter or a digit; ",
                "got '", Excerpt(context.spec().pool()), "'");
  }
}

}  // namespace freshet
