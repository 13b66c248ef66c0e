#include "model/program_memory.h"

#include <malloc.h>

#include <cstdint>

namespace freshet {

MemoryItem ProgramMemory() { return {"program", int64_t{270} << 20, MemoryItem::Place::kHost}; }

void ShareHeap() { ::mallopt(M_ARENA_MAX, 1); }

}  // namespace freshet
