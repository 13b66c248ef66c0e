#include "collective/nccl_library.h"

#include <dlfcn.h>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int kOldestVersion = 21400;

// Finds functions in a shared library and keeps the first failure.
class Functions {
 public:
  explicit Functions(const std::string& path)
      : path_(path), handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) Fail(::dlerror());
  }

  template <typename Function>
  void Find(const char* name, Function& function) {
    if (!status_.ok()) return;
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (function == nullptr) Fail(StrCat("it has no ", name));
  }
  const absl::Status& status() const { return status_; }

 private:
  void Fail(const std::string& reason) {
    status_ = StatusOf(absl::StatusCode::kUnavailable, path_, " cannot be used: ", reason);
  }

  const std::string path_;
  void* const handle_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const NcclLibrary>> NcclLibrary::Load(
    const NcclLibraryPaths& paths) {
  auto library = std::make_shared<NcclLibrary>();
  Functions nccl(paths.nccl);
  nccl.Find("ncclGetVersion", library->get_version);
  FRESHET_RETURN_IF_ERROR(nccl.status());
  if (int version = 0; library->get_version(&version) != kNcclSuccess || version < kOldestVersion) {
    return FailedPrecondition(paths.nccl, " has version ", version, ": ", kOldestVersion,
                              " (2.14) or newer is needed");
  }
  nccl.Find("ncclGetUniqueId", library->get_unique_id);
  nccl.Find("ncclCommInitRankConfig", library->init_rank);
  nccl.Find("ncclCommGetAsyncError", library->get_async_error);
  nccl.Find("ncclCommAbort", library->abort);
  nccl.Find("ncclGetErrorString", library->error_string);
  nccl.Find("ncclGetLastError", library->last_error);
  nccl.Find("ncclBroadcast", library->broadcast);
  nccl.Find("ncclAllReduce", library->all_reduce);
  nccl.Find("ncclReduceScatter", library->reduce_scatter);
  nccl.Find("ncclAllGather", library->all_gather);
  FRESHET_RETURN_IF_ERROR(nccl.status());
  Functions cuda(paths.cuda);
  cuda.Find("cudaSetDevice", library->set_device);
  cuda.Find("cudaMalloc", library->allocate);
  cuda.Find("cudaFree", library->free);
  cuda.Find("cudaStreamCreateWithFlags", library->create_stream);
  cuda.Find("cudaStreamDestroy", library->destroy_stream);
  cuda.Find("cudaStreamQuery", library->query_stream);
  cuda.Find("cudaMemcpyAsync", library->copy);
  cuda.Find("cudaPointerGetAttributes", library->describe_pointer);
  cuda.Find("cudaEventCreateWithFlags", library->create_event);
  cuda.Find("cudaEventDestroy", library->destroy_event);
  cuda.Find("cudaEventRecord", library->record_event);
  cuda.Find("cudaStreamWaitEvent", library->await_event);
  cuda.Find("cudaGetLastError", library->last_cuda_error);
  cuda.Find("cudaGetErrorString", library->cuda_error_string);
  FRESHET_RETURN_IF_ERROR(cuda.status());
  return library;
}

}  // namespace freshet
