#ifndef FRESHET_TRAINER_LEARNER_WEIGHT_ENTRIES_H_
#define FRESHET_TRAINER_LEARNER_WEIGHT_ENTRIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/dtype.h"
#include "model/parameter_layout.h"
#include "weights/manifest.h"

namespace freshet {

// The tensors of an arena of `dtype`.
inline std::vector<WeightEntry> EntriesOf(const ParameterLayout& layout, Dtype dtype) {
  std::vector<WeightEntry> entries;
  entries.reserve(layout.entries.size());
  for (const ParameterEntry& entry : layout.entries) {
    entries.push_back({entry.name, std::string(DtypeName(dtype)), entry.shape,
                       entry.offset * static_cast<int64_t>(DtypeBytes(dtype))});
  }
  return entries;
}

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_WEIGHT_ENTRIES_H_
