#include "datastore/trajectory.h"

#include "services/base/str_cat.h"

namespace freshet {

std::string SampleUid(const std::string& job, const SampleKey& key) {
  return StrCat(job, "/", key.ordinal, "/", key.attempt, "/", key.index);
}

}  // namespace freshet
