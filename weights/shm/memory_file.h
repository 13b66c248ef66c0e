#ifndef FRESHET_WEIGHTS_SHM_MEMORY_FILE_H_
#define FRESHET_WEIGHTS_SHM_MEMORY_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "weights/weight_arena.h"
#include "weights/weight_stager.h"

namespace freshet {

// Memory shared by the processes of a host: an anonymous file (memfd_create) that is sealed against
// all changes once filled. It exists as long as a process has it open or mapped, so a killed
// trainer leaves nothing behind and engines keep their mappings.

// Stages versions in sealed memory files, one write pass per version. A file is never rewritten, so
// engines may keep reading it; freed pages return to the system.
class MemoryFileStager final : public WeightStager {
 public:
  absl::StatusOr<WeightBytes> Stage(std::span<const std::byte> source, int64_t bucket_bytes,
                                    WeightManifest& manifest) override;
};

// Returns `bytes` in a sealed memory file; copies them unless they already are in one.
// RESOURCE_EXHAUSTED: out of memory or descriptors.
absl::StatusOr<WeightBytes> InMemoryFile(const WeightBytes& bytes);

// Path at which other processes open the memory file of `bytes`: "/proc/PID/fd/N". Valid as long as
// `bytes`.
std::string MemoryFilePath(const WeightArena& bytes);

// Maps another process's memory file read-only, without a copy. The arena owns the mapping.
//   INVALID_ARGUMENT: `path` is not a MemoryFilePath.
//   UNIMPLEMENTED: it cannot be opened here, or is not a sealed memory file of `size` bytes (for
//     example because `path` refers to something else in this process's namespace).
absl::StatusOr<WeightBytes> MapMemoryFile(const std::string& path, int64_t size);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_SHM_MEMORY_FILE_H_
