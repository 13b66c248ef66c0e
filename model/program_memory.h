#ifndef FRESHET_MODEL_PROGRAM_MEMORY_H_
#define FRESHET_MODEL_PROGRAM_MEMORY_H_

#include "base/memory_plan.h"

namespace freshet {

// Memory of a process with LibTorch before it has a model: code, tables, threads, and what the
// allocator keeps.
MemoryItem ProgramMemory();

// Makes all threads that start later share one heap. With a heap per thread, each keeps the free
// memory of its own largest moment, and a learner's peak exceeds its plan by up to a fifth. Call
// it first in `main`.
void ShareHeap();

}  // namespace freshet

#endif  // FRESHET_MODEL_PROGRAM_MEMORY_H_
