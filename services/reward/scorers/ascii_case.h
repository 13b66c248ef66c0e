#ifndef FRESHET_SERVICES_REWARD_SCORERS_ASCII_CASE_H_
#define FRESHET_SERVICES_REWARD_SCORERS_ASCII_CASE_H_

#include <string>
#include <string_view>

namespace freshet {

// Converts A-Z to lower case; other bytes, including non-ASCII UTF-8, are unchanged.
inline std::string AsciiLower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_ASCII_CASE_H_
