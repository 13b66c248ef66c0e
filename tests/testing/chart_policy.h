#ifndef FRESHET_TESTS_TESTING_CHART_POLICY_H_
#define FRESHET_TESTS_TESTING_CHART_POLICY_H_

#include <string>

#include "base/file.h"
#include "base/str_cat.h"

namespace freshet {

// Member names in the chart's policies for release freshet in namespace rl.
constexpr char kChartPeerName[] = "freshet-{role}.rl.svc";
inline std::string ChartName(const std::string& role) {
  return StrCat("freshet-", role, ".rl.svc");
}

// Returns the chart's authorization policy for a role, or "" if it cannot be read.
inline std::string ChartPolicy(const std::string& role) {
  const std::string path = StrCat(FRESHET_SOURCE_DIR "/helm/freshet/policies/", role, ".json");
  std::string text = ReadFile(path, 1 << 20).value_or("");
  for (const char* who : {"controller", "rollout", "reward", "env", "trainer", "keda"}) {
    const std::string mark = StrCat("\"@", who, "\"");
    const std::string name = StrCat("\"", ChartName(who), "\"");
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
      text.replace(at, mark.size(), name);
    }
  }
  return text;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_CHART_POLICY_H_
