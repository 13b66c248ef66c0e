#ifndef FRESHET_MODEL_PROGRAM_MEMORY_H_
#define FRESHET_MODEL_PROGRAM_MEMORY_H_

#include <cstdint>

#include "base/memory_plan.h"

namespace freshet {

// Memory of a process with LibTorch before it has a model: code, tables, threads, and what the
// allocator keeps.
inline MemoryItem ProgramMemory() {
  return {"program", int64_t{270} << 20, MemoryItem::Place::kHost};
}

}  // namespace freshet

#endif  // FRESHET_MODEL_PROGRAM_MEMORY_H_
