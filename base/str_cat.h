#ifndef FRESHET_BASE_STR_CAT_H_
#define FRESHET_BASE_STR_CAT_H_

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace freshet {
namespace str_cat_internal {

// On this toolchain absl::string_view is not std::string_view.
inline absl::string_view Adapt(std::string_view text) { return {text.data(), text.size()}; }
inline absl::string_view Adapt(const std::string& text) { return {text.data(), text.size()}; }
inline absl::string_view Adapt(const char* text) { return text; }
template <typename T>
requires(!std::is_convertible_v<const T&, std::string_view>) const T& Adapt(const T& value) {
  return value;
}

}  // namespace str_cat_internal

// absl::StrCat that also takes std::string_view.
template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(str_cat_internal::Adapt(args)...);
}

// Status of `code`; `args` are concatenated into the message.
template <typename... Args>
absl::Status StatusOf(absl::StatusCode code, const Args&... args) {
  return absl::Status(code, StrCat(args...));
}
template <typename... Args>
absl::Status InvalidArgument(const Args&... args) {
  return StatusOf(absl::StatusCode::kInvalidArgument, args...);
}
template <typename... Args>
absl::Status FailedPrecondition(const Args&... args) {
  return StatusOf(absl::StatusCode::kFailedPrecondition, args...);
}
template <typename... Args>
absl::Status NotFound(const Args&... args) {
  return StatusOf(absl::StatusCode::kNotFound, args...);
}
template <typename... Args>
absl::Status Internal(const Args&... args) {
  return StatusOf(absl::StatusCode::kInternal, args...);
}
template <typename... Args>
absl::Status DataLoss(const Args&... args) {
  return StatusOf(absl::StatusCode::kDataLoss, args...);
}
template <typename... Args>
absl::Status ResourceExhausted(const Args&... args) {
  return StatusOf(absl::StatusCode::kResourceExhausted, args...);
}

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

}  // namespace freshet

#endif  // FRESHET_BASE_STR_CAT_H_
