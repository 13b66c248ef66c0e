#ifndef FRESHET_TEXT_RUST_RESULT_H_
#define FRESHET_TEXT_RUST_RESULT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/str_cat.h"
#include "text/freshet_text.h"

namespace freshet {

inline const uint8_t* Data(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

inline std::string Take(FreshetBytes bytes) {
  std::string text(bytes.data, bytes.data + bytes.size);
  freshet_text_free_bytes(bytes);
  return text;
}

inline std::vector<int32_t> Take(FreshetIds ids) {
  std::vector<int32_t> taken(ids.data, ids.data + ids.size);
  freshet_text_free_ids(ids);
  return taken;
}

// Calls a function of the C ABI, `call(&out, &error)`, and takes what it stores. Its error becomes
// INVALID_ARGUMENT.
template <typename Out, typename Call>
auto CallText(const Call& call) -> absl::StatusOr<decltype(Take(Out()))> {
  Out out = {};
  FreshetBytes error = {};
  if (!call(&out, &error)) return InvalidArgument(Take(error));
  return Take(out);
}

}  // namespace freshet

#endif  // FRESHET_TEXT_RUST_RESULT_H_
