#ifndef FRESHET_WEIGHTS_SHM_MEMORY_FILE_H_
#define FRESHET_WEIGHTS_SHM_MEMORY_FILE_H_

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "weights/shm/mapped_file.h"
#include "weights/weight_arena.h"
#include "weights/weight_stager.h"

namespace freshet {

// Memory shared by the processes of a host: an anonymous file (memfd_create) of fixed size. It
// exists as long as a process has it open or mapped, so a killed trainer leaves nothing behind and
// engines keep their mappings. A file is one of two kinds, which its seals tell:
//   F_SEAL_WRITE         Nobody can change it.
//   F_SEAL_FUTURE_WRITE  Only the process that made it can change it, and does so only while it
//                        holds flock(LOCK_EX). A reader holds flock(LOCK_SH) while it uses the
//                        bytes. The content hash follows the bytes, so that a reader that got the
//                        lock knows which version they are; it is absent while they are written.

// Stages versions in memory files. Uses a file again once no arena of this process refers to it and
// no other process has locked it, so that its pages are allocated and mapped once. Holds the files
// of its arenas and at most one more.
class MemoryFileStager final : public WeightStager {
 public:
  // `seal` is F_SEAL_FUTURE_WRITE, which Linux has from 5.1 on and gVisor lacks. Where it does not
  // work, every version gets a new file with F_SEAL_WRITE.
  explicit MemoryFileStager(int seal = F_SEAL_FUTURE_WRITE) : seal_(seal) {}

  absl::StatusOr<WeightBytes> Stage(std::span<const std::byte> source, int64_t bucket_bytes,
                                    WeightManifest& manifest) override;

 private:
  // A file for `size` bytes and their hash that this process has locked alone; null if the system
  // lacks the seal.
  absl::StatusOr<std::shared_ptr<MappedFile>> Reserve(size_t size);

  const int seal_;
  std::vector<std::shared_ptr<MappedFile>> files_;
};

// Returns `bytes` in a memory file; copies them to one with F_SEAL_WRITE unless they already are in
// one. RESOURCE_EXHAUSTED: out of memory or descriptors.
absl::StatusOr<WeightBytes> InMemoryFile(const WeightBytes& bytes);

// Path at which other processes open the memory file of `bytes`: "/proc/PID/fd/N". Valid as long as
// `bytes`.
std::string MemoryFilePath(const WeightArena& bytes);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_SHM_MEMORY_FILE_H_
