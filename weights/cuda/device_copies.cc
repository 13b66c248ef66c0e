#include "weights/cuda/device_copies.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/word_digest.h"
#include "weights/shm/memory_file.h"

namespace freshet {

DeviceCopies::~DeviceCopies() { Trim(); }

void DeviceCopies::Trim() {
  const MutexLock lock(mu_);
  FreeIf([](const Copy&) { return true; });
}

void DeviceCopies::Start(size_t most) {
  Trim();
  const MutexLock lock(mu_);
  most_ = most;
}

void DeviceCopies::FreeIf(const std::function<bool(const Copy&)>& free) {
  std::erase_if(copies_, [&](Copy& copy) {
    if (!free(copy) || ::flock(copy.file->fd(), LOCK_EX | LOCK_NB) != 0) return false;
    memory_->Free(copy.data);
    // A fork may have inherited the file.
    ::flock(copy.file->fd(), LOCK_UN);
    return true;
  });
}

absl::StatusOr<DeviceCopies::Copy> DeviceCopies::Create(const std::string& path, size_t size) {
  Copy copy;
  copy.file = std::make_unique<MappedFile>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (copy.file->fd() < 0 || ::fstat(copy.file->fd(), &info) != 0) {
    return StatusOf(absl::StatusCode::kUnavailable, path,
                    ": cannot be opened: ", std::strerror(errno));
  }
  copy.file_device = info.st_dev;
  copy.file_inode = info.st_ino;
  copy.size = size;
  FRESHET_ASSIGN_OR_RETURN(copy.data, memory_->Allocate(size));
  absl::StatusOr<std::string> handle = memory_->Export(copy.data);
  if (!handle.ok()) {
    memory_->Free(copy.data);
    return handle.status();
  }
  copy.handle = *std::move(handle);
  return copy;
}

absl::StatusOr<DeviceOffer> DeviceCopies::Offer(const WeightArena& file,
                                                const std::string& content_hash,
                                                absl::Time deadline) {
  const int seals = file.shared_fd() < 0 ? -1 : ::fcntl(file.shared_fd(), F_GET_SEALS);
  struct stat info {};
  if (seals < 0 || (seals & F_SEAL_FUTURE_WRITE) == 0 || ::fstat(file.shared_fd(), &info) != 0) {
    return FailedPrecondition("the version is not in a memory file that engines lock");
  }
  if (file.size() == 0) return FailedPrecondition("the version is empty");
  const MutexLock lock(mu_);
  const auto of_file = [&info](const Copy& copy) {
    return copy.file_device == info.st_dev && copy.file_inode == info.st_ino;
  };
  auto found = std::find_if(copies_.begin(), copies_.end(), of_file);
  if (found == copies_.end()) {
    const bool full = copies_.size() >= most_;
    FreeIf([&](const Copy& copy) { return full || copy.size != file.size(); });
    if (copies_.size() >= most_) {
      return ResourceExhausted("engines still read the ", most_, " copies on the GPU");
    }
    FRESHET_ASSIGN_OR_RETURN(Copy copy, Create(MemoryFilePath(file), file.size()));
    found = copies_.insert(copies_.end(), std::move(copy));
  }
  if (found->content_hash != content_hash) {
    found->content_hash.clear();
    found->digest = WordDigest(file);
    FRESHET_RETURN_IF_ERROR(memory_->Write(found->data, file, deadline));
    found->content_hash = content_hash;
  }
  return DeviceOffer{memory_->uuid(), found->handle, file.size(), found->digest};
}

std::optional<DeviceOffer> DeviceCopies::OfferOrLog(const WeightArena& file,
                                                    const std::string& content_hash,
                                                    absl::Time deadline) {
  absl::StatusOr<DeviceOffer> offer = Offer(file, content_hash, deadline);
  const std::string error = Message(offer.status());
  bool changed = false;
  {
    const MutexLock lock(mu_);
    changed = std::exchange(error_, error) != error;
  }
  if (offer.ok()) return *std::move(offer);
  if (changed) FRESHET_LOG(Warning) << "event=no_gpu_copy reason=" << LogQuoted(error);
  return std::nullopt;
}

}  // namespace freshet
