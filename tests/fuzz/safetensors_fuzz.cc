// A safetensors file: every tensor of a file that opens is readable.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "model/safetensors.h"

namespace freshet {
namespace {

// A file that each input replaces.
class ScratchFile {
 public:
  ScratchFile() : fd_(::mkstemp(path_)) { FRESHET_CHECK(fd_ >= 0); }
  ~ScratchFile() {
    ::close(fd_);
    ::unlink(path_);
  }
  void Write(const uint8_t* data, size_t size) const {
    FRESHET_CHECK(::ftruncate(fd_, 0) == 0);
    FRESHET_CHECK(::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size));
  }
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/freshet_fuzz_XXXXXX";
  const int fd_;
};

}  // namespace
}  // namespace freshet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const freshet::ScratchFile scratch;
  scratch.Write(data, size);
  const auto file = freshet::SafetensorsFile::Open(scratch.path());
  if (!file.ok()) return 0;
  uint64_t bytes = 0;
  for (const std::string& name : (*file)->names()) {
    const freshet::TensorInfo* info = (*file)->Find(name);
    FRESHET_CHECK(freshet::TensorBytes(info->dtype, info->shape).value() == info->bytes);
    bytes += (*file)->Data(*info).size();
  }
  FRESHET_CHECK(bytes < size);
  return 0;
}
