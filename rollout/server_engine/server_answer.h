#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_ANSWER_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/policy_version.h"
#include "nlohmann/json.hpp"

// Reading what inference servers answer. Answers are untrusted: whatever is malformed is an
// INTERNAL error that says what was expected.

namespace freshet {

constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

// The object in `text`. `what` names it in errors.
absl::StatusOr<nlohmann::json> ParseAnswer(const std::string& text, const char* what);
// The member `name`, or null.
const nlohmann::json& AnswerMember(const nlohmann::json& object, const char* name);
// An integer from 0 to `max`.
std::optional<int64_t> AnswerCount(const nlohmann::json& json, int64_t max);
absl::Status WrongAnswer(const char* where, const nlohmann::json& got, const char* want);

// The error of an answer whose status is not 200, to the call `what`.
//   INVALID_ARGUMENT: the server rejects this request.
//   FAILED_PRECONDITION: it lacks the route or the model, or denies access; repeating is useless.
//   UNAVAILABLE: it failed or is overloaded.
absl::Status HttpError(std::string_view what, int status, const std::string& body);

// Splits a text/event-stream into the contents of its data lines.
class EventLines {
 public:
  // Appends the complete ones to `lines`. INTERNAL: a line is longer than kMaxBytes.
  absl::Status Add(std::string_view bytes, std::vector<std::string>& lines);

 private:
  static constexpr size_t kMaxBytes = 4 << 20;
  std::string rest_;
};

// In spans: a label that VersionLabel does not make, such as that of a server which has restarted.
constexpr PolicyVersion kForeignVersion{-1, -1};

// "LINEAGE.VERSION", a policy as the server's weight version.
std::string VersionLabel(const PolicyVersion& policy);
std::optional<PolicyVersion> ParseVersionLabel(std::string_view label);
// Checks that the member weight_version of `body` is the label of `policy`.
absl::Status CheckWeightVersion(const std::string& body, const PolicyVersion& policy);

// What GET /v1/models says.
struct ServedModel {
  std::string name;
  int64_t max_model_len = 0;
};
absl::StatusOr<ServedModel> ParseServedModel(const std::string& body);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_ANSWER_H_
