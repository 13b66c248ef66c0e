#include "rollout/server_engine/server_answer.h"

#include <charconv>
#include <system_error>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kAnswerLimits{.max_depth = 16, .max_values = 1'000'000};
constexpr int64_t kMaxVersion = int64_t{1} << 53;

// The message of an error object, or the beginning of the text.
std::string ErrorText(const std::string& body) {
  constexpr size_t kMaxBytes = 300;
  std::string text = body;
  const absl::StatusOr<Json> json = ParseJson(body, "", kAnswerLimits);
  if (json.ok()) {
    for (const Json* message : {&AnswerMember(AnswerMember(*json, "error"), "message"),
                                &AnswerMember(*json, "message"), &AnswerMember(*json, "detail")}) {
      if (message->is_string()) text = message->get<std::string>();
    }
  }
  text = text.substr(0, kMaxBytes);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = ' ';
  }
  return text;
}

}  // namespace

absl::StatusOr<Json> ParseAnswer(const std::string& text, const char* what) {
  absl::StatusOr<Json> json = ParseJson(text, StrCat("the server's ", what), kAnswerLimits);
  if (!json.ok()) return Internal(Message(json.status()));
  if (!json->is_object()) return Internal("the server's ", what, " is not an object");
  return json;
}

const Json& AnswerMember(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::optional<int64_t> AnswerCount(const Json& json, int64_t max) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(max)) {
    return std::nullopt;
  }
  const auto value = json.get<int64_t>();
  if (value < 0 || value > max) return std::nullopt;
  return value;
}

absl::Status WrongAnswer(const char* where, const Json& got, const char* want) {
  return Internal("the server's answer: ", where, " is ", JsonExcerpt(got), ", want ", want);
}

absl::Status HttpError(std::string_view what, int status, const std::string& body) {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::string hint;
  if (status == 400 || status == 413 || status == 422) {
    code = absl::StatusCode::kInvalidArgument;
  } else if (status == 401 || status == 403 || status == 404 || status == 405) {
    code = absl::StatusCode::kFailedPrecondition;
    hint = "; start the server with the flags of its supervise.sh";
  }
  return StatusOf(code, "the server answers ", what, " with ", status, ": ", ErrorText(body), hint);
}

absl::Status EventLines::Add(std::string_view bytes, std::vector<std::string>& lines) {
  rest_.append(bytes);
  size_t begin = 0;
  for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    std::string_view line = std::string_view(rest_).substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    lines.emplace_back(line);
  }
  rest_.erase(0, begin);
  if (rest_.size() > kMaxBytes) {
    return Internal("the server's answer: an event of more than ", kMaxBytes, " bytes");
  }
  return absl::OkStatus();
}

std::string VersionLabel(const PolicyVersion& policy) {
  return StrCat(policy.lineage, ".", policy.version);
}

std::optional<PolicyVersion> ParseVersionLabel(std::string_view label) {
  const auto number = [](std::string_view text) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 ||
        value > kMaxVersion) {
      return std::nullopt;
    }
    return value;
  };
  const size_t dot = label.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> lineage = number(label.substr(0, dot));
  const std::optional<int64_t> version = number(label.substr(dot + 1));
  if (!lineage.has_value() || !version.has_value()) return std::nullopt;
  return PolicyVersion{*lineage, *version};
}

absl::Status CheckWeightVersion(const std::string& body, const PolicyVersion& policy) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(body, "weight version"));
  const Json& version = AnswerMember(json, "weight_version");
  if (!version.is_string()) return WrongAnswer("weight_version", version, "a text");
  const auto& label = version.get_ref<const std::string&>();
  if (label == VersionLabel(policy)) return absl::OkStatus();
  return Internal("the server's weight version is ", label.substr(0, 40), " after it was set to ",
                  VersionLabel(policy));
}

absl::StatusOr<ServedModel> ParseServedModel(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(body, "list of models"));
  const Json& data = AnswerMember(json, "data");
  if (!data.is_array() || data.empty()) return WrongAnswer("data", data, "a list of models");
  const Json& id = AnswerMember(data[0], "id");
  const Json& length = AnswerMember(data[0], "max_model_len");
  if (!id.is_string()) return WrongAnswer("a model's id", id, "a text");
  const std::optional<int64_t> tokens = AnswerCount(length, kMaxVersion);
  if (!tokens.has_value()) return WrongAnswer("max_model_len", length, "a number of tokens");
  return ServedModel{id.get<std::string>(), *tokens};
}

}  // namespace freshet
