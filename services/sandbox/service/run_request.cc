#include "services/sandbox/service/run_request.h"

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "services/sandbox/worker/succeeded.h"

namespace freshet::sandbox {

using nlohmann::json;
using v1::CommandResult;

namespace {

constexpr char kSource[] = "request";
constexpr double kDefaultSeconds = 10;
constexpr int kMaxFiles = 64;

const char* LimitText(CommandResult::End end) {
  switch (end) {
    case CommandResult::END_TIME_LIMIT:
      return "time";
    case CommandResult::END_MEMORY_LIMIT:
      return "memory";
    case CommandResult::END_FOLDER_LIMIT:
      return "files";
    case CommandResult::END_OUTPUT_LIMIT:
      return "output";
    case CommandResult::END_TASK_LIMIT:
      return "tasks";
    default:
      return "";
  }
}

absl::StatusOr<int64_t> Milliseconds(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) {
    return static_cast<int64_t>(1000 * kDefaultSeconds);
  }
  const double seconds = found->is_number() ? found->get<double>() : -1;
  if (!(seconds > 0 && seconds <= kMaxSeconds)) {
    return InvalidArgument(name, " is ", found->dump().substr(0, 60), "; want seconds, at most ",
                           kMaxSeconds);
  }
  return static_cast<int64_t>(std::ceil(1000 * seconds));
}

absl::Status ReadFiles(const json& object, v1::Program& program) {
  const auto files = object.find("files");
  if (files != object.end() && !files->is_null()) {
    if (!files->is_object() || files->size() > kMaxFiles) {
      return InvalidArgument("files is not an object of at most ", kMaxFiles, " members");
    }
    for (const auto& [path, content] : files->items()) {
      std::string bytes;
      if (content.is_null()) continue;  // SandboxFusion ignores them
      if (!content.is_string() || !absl::Base64Unescape(content.get<std::string>(), &bytes)) {
        return InvalidArgument("files: ", path, " is not base64");
      }
      (*program.mutable_files())[path] = std::move(bytes);
    }
  }
  const auto fetched = object.find("fetch_files");
  if (fetched != object.end() && !fetched->is_null()) {
    if (!fetched->is_array() || fetched->size() > kMaxFiles) {
      return InvalidArgument("fetch_files is not a list of at most ", kMaxFiles, " paths");
    }
    for (const json& path : *fetched) {
      if (!path.is_string()) return InvalidArgument("fetch_files has a value that is no path");
      program.add_fetch_files(path.get<std::string>());
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string LanguageName(std::string_view name) {
  static const auto& names = *new std::map<std::string_view, std::string_view>{
      {"python3", "python"}, {"py", "python"},   {"c++", "cpp"},    {"javascript", "nodejs"},
      {"js", "nodejs"},      {"node", "nodejs"}, {"shell", "bash"}, {"sh", "bash"}};
  const auto found = names.find(name);
  return std::string(found == names.end() ? name : found->second);
}

absl::Status SetTimeouts(const json& object, v1::Program& program) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t compile_ms, Milliseconds(object, "compile_timeout"));
  FRESHET_ASSIGN_OR_RETURN(const int64_t run_ms, Milliseconds(object, "run_timeout"));
  program.set_compile_ms(compile_ms);
  program.set_run_ms(run_ms);
  const double total = 1e-3 * static_cast<double>(compile_ms + program.inputs_size() * run_ms);
  if (total > kMaxTotalSeconds) {
    return InvalidArgument("compile_timeout and the run_timeout of all tests are ", total,
                           " s together; at most ", kMaxTotalSeconds);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Program> ParseRunRequest(std::string_view body) {
  FRESHET_ASSIGN_OR_RETURN(const json object, ParseJson(body, kSource));
  if (!object.is_object()) return InvalidArgument("the request is not an object");
  std::vector<std::string> errors;
  JsonFields fields(object, kSource, errors);
  v1::Program program;
  program.set_language(LanguageName(fields.String("language", "")));
  program.set_code(fields.String("code", ""));
  program.add_inputs(fields.String("stdin", ""));
  if (!fields.Has("language")) fields.AddError("language is missing");
  if (!fields.Has("code")) fields.AddError("code is missing");
  if (!errors.empty()) return InvalidArgument(absl::StrJoin(errors, "\n"));
  FRESHET_RETURN_IF_ERROR(SetTimeouts(object, program));
  FRESHET_RETURN_IF_ERROR(ReadFiles(object, program));
  return program;
}

json CommandJson(const CommandResult& result) {
  const bool late = result.end() == CommandResult::END_TIME_LIMIT;
  json answer = {{"status", late ? "TimeLimitExceeded" : "Finished"},
                 {"execution_time", result.wall_seconds()},
                 {"cpu_time", result.cpu_seconds()},
                 {"return_code", nullptr},
                 {"stdout", ValidUtf8(result.standard_output())},
                 {"stderr", ValidUtf8(result.standard_error())}};
  // A program that a limit ended was killed.
  if (!late)
    answer["return_code"] = result.end() == CommandResult::END_EXITED ? result.exit_code() : -9;
  return answer;
}

json RunJson(const v1::Outcome& outcome, int run) {
  json answer = {{"status", "Failed"},           {"message", ""},
                 {"compile_result", nullptr},    {"run_result", nullptr},
                 {"executor_pod_name", nullptr}, {"files", json::object()}};
  const CommandResult* last = &outcome.compilation();
  if (outcome.has_compilation()) answer["compile_result"] = CommandJson(outcome.compilation());
  if (run < outcome.runs_size()) {
    last = &outcome.runs(run);
    answer["run_result"] = CommandJson(*last);
    if (Succeeded(*last)) answer["status"] = "Success";
  }
  if (const std::string limit = LimitText(last->end()); !limit.empty()) {
    answer["message"] = StrCat("ended by the limit of ", limit);
  }
  for (const auto& [path, content] : outcome.files()) {
    answer["files"][path] = absl::Base64Escape(content);
  }
  return answer;
}

json SandboxErrorJson(const std::string& message) {
  json answer = RunJson(v1::Outcome(), 0);
  answer["status"] = "SandboxError";
  answer["message"] = ValidUtf8(message);
  return answer;
}

}  // namespace freshet::sandbox
