#include "job/job_state.h"

#include <string_view>

namespace freshet {

std::string StateName(job::v1::JobState state) {
  constexpr std::string_view kPrefix = "JOB_STATE_";
  const std::string& name = job::v1::JobState_Name(state);
  if (name.size() <= kPrefix.size() || state == job::v1::JOB_STATE_UNSPECIFIED) return "UNKNOWN";
  return name.substr(kPrefix.size());
}

bool HasEnded(job::v1::JobState state) {
  return state == job::v1::JOB_STATE_SUCCEEDED || state == job::v1::JOB_STATE_FAILED ||
         state == job::v1::JOB_STATE_CANCELLED;
}

}  // namespace freshet
