#ifndef FRESHET_JOB_JOB_ID_H_
#define FRESHET_JOB_JOB_ID_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace freshet {

inline constexpr size_t kMaxJobIdLength = 63;

// Whether `id` has 1 to 63 letters, digits, '.', '_' and '-', and starts with a letter or digit.
bool IsJobId(std::string_view id);

// NAME-xxxxxxxx, truncated to the maximum id length.
std::string MakeJobId(const std::string& name, uint64_t random_bits);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_ID_H_
