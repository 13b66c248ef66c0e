#ifndef FRESHET_COLLECTIVE_NCCL_LIBRARY_H_
#define FRESHET_COLLECTIVE_NCCL_LIBRARY_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

// The parts of the C interfaces of NCCL (2.14 or newer) and the CUDA runtime that NcclCommunicator
// uses. Declared here because both libraries are loaded at run time: programs are built and start
// without them.

struct NcclUniqueId {  // ncclUniqueId
  std::array<char, 128> bytes{};
};

enum NcclResult : int {  // ncclResult_t
  kNcclSuccess = 0,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};
enum NcclType : int { kNcclBytes = 0, kNcclFloat = 7 };  // ncclDataType_t: ncclChar, ncclFloat
enum NcclOperation : int { kNcclSum = 0 };               // ncclRedOp_t

struct NcclConfig {  // the beginning of ncclConfig_t, as of version 2.14; NCCL reads `size` bytes
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
};

using NcclComm = struct NcclCommObject*;      // ncclComm_t
using CudaStream = struct CudaStreamObject*;  // cudaStream_t
using CudaEvent = struct CudaEventObject*;    // cudaEvent_t

enum CudaError : int { kCudaSuccess = 0, kCudaNotReady = 600 };        // cudaError_t
enum CudaCopy : int { kCudaByPointers = 4 };                           // cudaMemcpyKind
enum CudaMemory : int { kCudaHostMemory = 1, kCudaDeviceMemory = 2 };  // cudaMemoryType

struct CudaPointer {  // cudaPointerAttributes, with room for what newer versions add
  int memory = 0;     // CudaMemory; 0: unknown to CUDA, which is host memory
  int device = 0;
  void* on_device = nullptr;
  void* on_host = nullptr;
  std::array<long, 16> added{};  // NOLINT(google-runtime-int): CUDA's type
};

struct NcclLibraryPaths {
  std::string nccl = "libnccl.so.2";
  std::string cuda = "libcudart.so.13";
};

struct NcclLibrary {
  // UNAVAILABLE, naming library or function: one cannot be loaded. FAILED_PRECONDITION: NCCL is
  // older than 2.14. The libraries stay loaded.
  static absl::StatusOr<std::shared_ptr<const NcclLibrary>> Load(const NcclLibraryPaths& paths);

  NcclResult (*get_version)(int* version);
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*init_rank)(NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config);
  NcclResult (*get_async_error)(NcclComm comm, NcclResult* error);
  NcclResult (*abort)(NcclComm comm);
  const char* (*error_string)(NcclResult result);
  const char* (*last_error)(NcclComm comm);
  NcclResult (*broadcast)(const void* from, void* to, size_t count, NcclType type, int root,
                          NcclComm comm, CudaStream stream);
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, NcclType type,
                           NcclOperation operation, NcclComm comm, CudaStream stream);
  NcclResult (*reduce_scatter)(const void* from, void* to, size_t received, NcclType type,
                               NcclOperation operation, NcclComm comm, CudaStream stream);
  NcclResult (*all_gather)(const void* from, void* to, size_t sent, NcclType type, NcclComm comm,
                           CudaStream stream);

  CudaError (*set_device)(int device);
  CudaError (*allocate)(void** pointer, size_t size);
  CudaError (*free)(void* pointer);
  CudaError (*create_stream)(CudaStream* stream, unsigned int flags);
  CudaError (*destroy_stream)(CudaStream stream);
  CudaError (*query_stream)(CudaStream stream);
  CudaError (*copy)(void* to, const void* from, size_t size, CudaCopy kind, CudaStream stream);
  CudaError (*describe_pointer)(CudaPointer* pointer, const void* address);
  CudaError (*create_event)(CudaEvent* event, unsigned int flags);
  CudaError (*destroy_event)(CudaEvent event);
  CudaError (*record_event)(CudaEvent event, CudaStream stream);
  CudaError (*await_event)(CudaStream stream, CudaEvent event, unsigned int flags);
  // Returns and clears the calling thread's last error, which other users of CUDA would take for
  // theirs.
  CudaError (*last_cuda_error)();
  const char* (*cuda_error_string)(CudaError error);
};

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_NCCL_LIBRARY_H_
