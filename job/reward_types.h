#ifndef FRESHET_JOB_REWARD_TYPES_H_
#define FRESHET_JOB_REWARD_TYPES_H_

#include <string_view>

namespace freshet {

// Whether components of this type are scored by another process, which a call asks.
inline bool IsRewardService(std::string_view type) {
  return type == "grpc" || type == "math" || type == "python" || type == "code" || type == "judge";
}

// The field of a judge's text that is replaced with the completion.
inline constexpr std::string_view kResponseField = "response";

// Whether {field} in the text of a component of this type is a field of the row. {prompt} is the
// sample's prompt.
inline bool IsRowField(std::string_view type, std::string_view field) {
  return field != "prompt" && (type != "judge" || field != kResponseField);
}

}  // namespace freshet

#endif  // FRESHET_JOB_REWARD_TYPES_H_
