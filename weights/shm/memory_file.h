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

// Memory that processes of one host share: an anonymous file (memfd_create) that is sealed against
// every change once it is filled. It lives as long as any process has it open or mapped, so a
// killed trainer leaves nothing behind and its engines keep what they have mapped.

// Stages versions in sealed memory files, one write pass per version. A file is never written
// again, so an engine may read it for as long as it likes; freed pages go back to the system.
class MemoryFileStager final : public WeightStager {
 public:
  absl::StatusOr<WeightBytes> Stage(std::span<const std::byte> source, int64_t bucket_bytes,
                                    WeightManifest& manifest) override;
};

// `bytes` in a sealed memory file: the same when they are in one already, else a copy.
// RESOURCE_EXHAUSTED when there is no memory or no descriptor.
absl::StatusOr<WeightBytes> InMemoryFile(const WeightBytes& bytes);

// Where other processes open the memory file of `bytes`: "/proc/PID/fd/N". Good while `bytes`
// lives.
std::string MemoryFilePath(const WeightArena& bytes);

// Maps a memory file of another process, read-only, without a copy. The arena keeps the mapping.
// Returns:
//   INVALID_ARGUMENT: `path` is not of the form of MemoryFilePath.
//   UNIMPLEMENTED: it cannot be opened from here, or is not a sealed memory file of `size` bytes
//   (as when `path` means something else in this process's view of the host).
absl::StatusOr<WeightBytes> MapMemoryFile(const std::string& path, int64_t size);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_SHM_MEMORY_FILE_H_
