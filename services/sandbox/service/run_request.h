#ifndef FRESHET_SERVICES_SANDBOX_SERVICE_RUN_REQUEST_H_
#define FRESHET_SERVICES_SANDBOX_SERVICE_RUN_REQUEST_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "freshet/sandbox/v1/sandbox.pb.h"
#include "nlohmann/json.hpp"

// The requests and answers of POST /run_code, as SandboxFusion 0.3 has them. Pure.

namespace freshet::sandbox {

// Largest time limit of a command, and of a request's commands together, in seconds.
constexpr double kMaxSeconds = 600;
constexpr double kMaxTotalSeconds = 1200;

// The names that SandboxFusion and others use for a language; others are returned as they are.
std::string LanguageName(std::string_view name);

// A program with one input. INVALID_ARGUMENT naming the field.
absl::StatusOr<v1::Program> ParseRunRequest(std::string_view body);

// One command as CommandRunResult. What is not valid UTF-8 is replaced.
nlohmann::json CommandJson(const v1::CommandResult& result);

// The answer: `status` is Success if everything exited with 0, else Failed. `message` names a limit
// that ended the program.
nlohmann::json RunJson(const v1::Outcome& outcome, int run);
// Of a program that could not be run; clients repeat the call.
nlohmann::json SandboxErrorJson(const std::string& message);

// Reads compile_timeout and run_timeout of `object` into the program, which has its inputs.
// INVALID_ARGUMENT.
absl::Status SetTimeouts(const nlohmann::json& object, v1::Program& program);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_SERVICE_RUN_REQUEST_H_
