#include "services/reward/scorers/reward_model_question.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/text_template.h"
#include "base/utf8.h"
#include "job/reward_types.h"

namespace freshet {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kShownAnswerBytes = 200;

// The row's messages, or its prompt as a user's message; then the completion.
ordered_json Messages(const std::string& prompt, const std::string& completion) {
  ordered_json messages = ordered_json::array();
  const absl::StatusOr<ordered_json> parsed = ParseOrderedJson(prompt, "prompt");
  // A chat row's prompt is {"messages": [...], ...}.
  const ordered_json list = parsed.ok() && parsed->is_object()
                                ? parsed->value("messages", ordered_json())
                                : ordered_json();
  const bool listed = list.is_array() && !list.empty() &&
                      std::all_of(list.begin(), list.end(), [](const ordered_json& message) {
                        return message.is_object() && message.contains("role");
                      });
  if (listed) {
    messages = list;
  } else {
    messages.push_back({{"role", "user"}, {"content", prompt}});
  }
  messages.push_back({{"role", "assistant"}, {"content", completion}});
  return messages;
}

absl::StatusOr<std::string> PoolingRequest(const std::string& model,
                                           const std::optional<TextTemplate>& text,
                                           const ScoreInput& input) {
  std::map<std::string, std::string> values = input.attributes;
  values[std::string(kResponseField)] = ValidUtf8(std::string(input.completion));
  ordered_json body;
  body["model"] = model;
  body["task"] = "classify";
  body["use_activation"] = false;
  if (text.has_value()) {
    const absl::StatusOr<std::string> rendered = text->Render(values);
    if (!rendered.ok()) return FailedPrecondition(Message(rendered.status()), " in the row");
    body["input"] = *rendered;
  } else {
    const auto prompt = values.find("prompt");
    if (prompt == values.end()) return FailedPrecondition("no field 'prompt' in the row");
    body["messages"] = Messages(prompt->second, values[std::string(kResponseField)]);
  }
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

absl::StatusOr<ComponentScore> OutputOf(std::string_view answer) {
  const absl::StatusOr<json> parsed = ParseJson(answer, "answer");
  const json data = parsed.ok() && parsed->is_object() ? parsed->value("data", json()) : json();
  const json first = data.is_array() && data.size() == 1 ? data[0] : json();
  const json output = first.is_object() ? first.value("data", json()) : json();
  const bool one = output.is_array() && output.size() == 1 && output[0].is_number();
  if (!one || !std::isfinite(output[0].get<double>())) {
    return Internal("the reward model gives no score; it must have one output: ",
                    ValidUtf8(std::string(answer.substr(0, kShownAnswerBytes))));
  }
  return ComponentScore{output[0].get<double>()};
}

}  // namespace

absl::StatusOr<HttpQuestion> RewardModelQuestion(RewardModel reward) {
  std::optional<TextTemplate> text;
  if (!reward.text.empty()) {
    absl::StatusOr<TextTemplate> parsed = TextTemplate::Parse(reward.text);
    if (!parsed.ok()) return InvalidArgument("text: ", Message(parsed.status()));
    const std::vector<std::string>& fields = parsed->fields();
    if (std::find(fields.begin(), fields.end(), kResponseField) == fields.end()) {
      return InvalidArgument("text does not contain {", kResponseField,
                             "}, so the model would not see the completion");
    }
    text = *std::move(parsed);
  }
  HttpQuestion question;
  question.path = "/pooling";
  question.bodies = [model = std::move(reward.model), text = std::move(text)](
                        const ScoreInput& input) -> absl::StatusOr<std::vector<std::string>> {
    FRESHET_ASSIGN_OR_RETURN(std::string body, PoolingRequest(model, text, input));
    return std::vector{std::move(body)};
  };
  question.verdict = [](const std::vector<std::string>& answers) {
    return OutputOf(answers.front());
  };
  return question;
}

}  // namespace freshet
