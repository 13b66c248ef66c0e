#include "weights/cuda/device_copy_opener.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// An open copy. Closed before the bytes, and so the lock of their file, are released.
struct OpenCopy {
  OpenCopy(std::shared_ptr<DeviceMemory> gpu, WeightBytes host, const std::byte* opened)
      : memory(std::move(gpu)), bytes(std::move(host)), data(opened) {}
  ~OpenCopy() { memory->Close(data); }
  OpenCopy(const OpenCopy&) = delete;
  OpenCopy& operator=(const OpenCopy&) = delete;

  const std::shared_ptr<DeviceMemory> memory;
  const WeightBytes bytes;
  const std::byte* const data;
};

}  // namespace

absl::StatusOr<WeightBytes> DeviceCopyOpener::Open(const WeightBytes& bytes,
                                                   const std::string& path,
                                                   const DeviceOffer& offer) const {
  FRESHET_RETURN_IF_ERROR(memory_.status());
  const std::shared_ptr<DeviceMemory>& memory = *memory_;
  if (offer.uuid != memory->uuid()) {
    return FailedPrecondition("the trainer's copy is on another GPU");
  }
  if (offer.size != bytes->size()) {
    return InvalidArgument("the trainer's copy has ", offer.size, " bytes, the version has ",
                           bytes->size());
  }
  struct stat owned {};
  if (::stat(path.c_str(), &owned) != 0) {
    return StatusOf(absl::StatusCode::kUnavailable, path, ": ", std::strerror(errno));
  }
  FRESHET_ASSIGN_OR_RETURN(const std::byte* data, memory->Open(offer.handle));
  const auto owner = std::make_shared<const OpenCopy>(memory, bytes, data);
  DeviceCopy copy;
  copy.data = data;
  copy.device = memory->device();
  copy.digest = offer.digest;
  // The path is the trainer's, so it leads to the file only as long as the trainer lives.
  copy.owner_lives = [path, owned] {
    struct stat now {};
    return ::stat(path.c_str(), &now) == 0 && now.st_dev == owned.st_dev &&
           now.st_ino == owned.st_ino;
  };
  return std::make_shared<const WeightArena>(bytes->data(), bytes->size(), owner, /*shared_fd=*/-1,
                                             std::move(copy));
}

WeightBytes DeviceCopyOpener::Attach(WeightBytes bytes, const std::string& path,
                                     const DeviceOffer& offer) {
  absl::StatusOr<WeightBytes> with_copy = Open(bytes, path, offer);
  const std::string reason = with_copy.ok() ? "used" : Message(with_copy.status());
  {
    const MutexLock lock(mu_);
    if (reason == reason_) return with_copy.ok() ? *std::move(with_copy) : std::move(bytes);
    reason_ = reason;
  }
  if (with_copy.ok()) {
    FRESHET_LOG(Info) << "event=gpu_copy_used";
    return *std::move(with_copy);
  }
  FRESHET_LOG(Warning) << "event=no_gpu_copy reason=" << LogQuoted(reason);
  return bytes;
}

}  // namespace freshet
