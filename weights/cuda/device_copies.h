#ifndef FRESHET_WEIGHTS_CUDA_DEVICE_COPIES_H_
#define FRESHET_WEIGHTS_CUDA_DEVICE_COPIES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "weights/cuda/device_memory.h"
#include "weights/shm/mapped_file.h"
#include "weights/weight_arena.h"

namespace freshet {

// What an engine needs to open the copy of a version on the trainer's GPU.
struct DeviceOffer {
  std::string uuid;     // of the GPU
  std::string handle;   // of DeviceMemory::Export
  uint64_t size = 0;    // bytes of the version
  uint64_t digest = 0;  // WordDigest
};

// The trainer's copies of memory files on its GPU, for engines that compute on it. A copy belongs
// to one file for its whole life, and the file's lock guards it too: an engine has the copy open
// only while it holds flock(LOCK_SH) of the file, so a copy is freed only under LOCK_EX, and it is
// written only after the trainer has written the file, which needs LOCK_EX. There are at most
// as many as Start allows. One that an engine still reads keeps its file open until then.
// Thread-safe.
class DeviceCopies {
 public:
  explicit DeviceCopies(std::shared_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {}
  // Frees the copies that no engine reads. The others live as long as the process.
  ~DeviceCopies();

  // Copies `file`, of MemoryFileStager, to the GPU, unless the copy has `content_hash` already,
  // which is that of `file`. Blocks until the copy is complete; other calls wait.
  //   FAILED_PRECONDITION: `file` is not a memory file that engines lock, or is empty.
  //   RESOURCE_EXHAUSTED: the GPU's memory is full, or engines still read all copies.
  //   Otherwise an error of DeviceMemory.
  absl::StatusOr<DeviceOffer> Offer(const WeightArena& file, const std::string& content_hash,
                                    absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // As Offer; none on an error, which is logged unless the call before had the same.
  std::optional<DeviceOffer> OfferOrLog(const WeightArena& file, const std::string& content_hash,
                                        absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // Begins a job that may have `most` copies; none before. Frees those that no engine reads.
  void Start(size_t most) ABSL_LOCKS_EXCLUDED(mu_);
  // Frees the copies that no engine reads. Call it at the end of a job.
  void Trim() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Copy {
    std::unique_ptr<MappedFile> file;  // open, with a lock of its own
    dev_t file_device = 0;
    ino_t file_inode = 0;
    size_t size = 0;
    std::byte* data = nullptr;
    std::string handle;
    std::string content_hash;  // of the version that it holds; "": of none
    uint64_t digest = 0;
  };

  // Frees the copies that `free` chooses and no engine reads.
  void FreeIf(const std::function<bool(const Copy&)>& free) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A copy for the file at `path`, which is `size` bytes long.
  absl::StatusOr<Copy> Create(const std::string& path, size_t size);

  const std::shared_ptr<DeviceMemory> memory_;
  Mutex mu_;
  size_t most_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Copy> copies_ ABSL_GUARDED_BY(mu_);
  std::string error_ ABSL_GUARDED_BY(mu_);  // of the last OfferOrLog
};

// How a trainer gets the copies of its GPU; see OpenDeviceMemory.
using OpenDeviceCopies =
    std::function<absl::StatusOr<std::shared_ptr<DeviceCopies>>(const std::string& device)>;

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_CUDA_DEVICE_COPIES_H_
