#ifndef FRESHET_SERVICES_REWARD_SCORERS_ASCII_CASE_H_
#define FRESHET_SERVICES_REWARD_SCORERS_ASCII_CASE_H_

#include <string>
#include <string_view>

namespace freshet {

// `text` with A-Z in lower case; other bytes, those of UTF-8 included, as they are.
inline std::string AsciiLower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_ASCII_CASE_H_
