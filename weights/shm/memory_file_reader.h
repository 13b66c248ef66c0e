#ifndef FRESHET_WEIGHTS_SHM_MEMORY_FILE_READER_H_
#define FRESHET_WEIGHTS_SHM_MEMORY_FILE_READER_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "weights/manifest.h"
#include "weights/shm/mapped_file.h"
#include "weights/weight_arena.h"

namespace freshet {

// Maps memory files of other processes (memory_file.h) read-only, without a copy. Keeps the
// mappings of the two files with F_SEAL_FUTURE_WRITE that it used last, so that a version in one of
// them needs no new mapping; their memory is freed when two other files have come, or with the
// reader. Thread-safe.
class MemoryFileReader {
 public:
  // The verified bytes of `manifest`, which the arena keeps as they are. Hashes a file that nobody
  // can change; trusts its owner for the content hash of one that the owner can change.
  //   DATA_LOSS: they are other bytes, such as those of a newer version.
  //   INVALID_ARGUMENT: `path` is not a MemoryFilePath.
  //   UNAVAILABLE: its owner is writing to it.
  //   RESOURCE_EXHAUSTED: this process is out of descriptors or memory.
  //   UNIMPLEMENTED: it cannot be opened or locked here, or is not a memory file of that size (for
  //     example because `path` refers to something else in this process's namespace).
  absl::StatusOr<WeightBytes> Map(const std::string& path, const WeightManifest& manifest)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Known {
    dev_t device;
    ino_t inode;
    std::shared_ptr<const MappedFile> mapping;
  };

  // The mapping of all `size` bytes of `fd`; null with errno set on failure.
  std::shared_ptr<const MappedFile> MappingOf(int fd, dev_t device, ino_t inode, size_t size)
      ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  std::vector<Known> known_ ABSL_GUARDED_BY(mu_);  // the one used last is the last
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_SHM_MEMORY_FILE_READER_H_
