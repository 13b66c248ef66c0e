#include "job/job_id.h"

#include <algorithm>
#include <cctype>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {

bool IsJobId(std::string_view id) {
  const auto alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !id.empty() && id.size() <= kMaxJobIdLength && alnum(id.front()) &&
         std::all_of(id.begin(), id.end(),
                     [&alnum](char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
}

std::string MakeJobId(const std::string& name, uint64_t random_bits) {
  const std::string suffix = Hex64(random_bits).substr(0, 8);
  std::string stem;
  for (const char c : name.substr(0, kMaxJobIdLength - suffix.size() - 1)) {
    stem += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  }
  if (stem.empty() || stem.front() == '-') stem.insert(0, "job");
  return StrCat(stem.substr(0, kMaxJobIdLength - suffix.size() - 1), "-", suffix);
}

}  // namespace freshet
