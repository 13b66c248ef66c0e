#ifndef FRESHET_TESTS_COLLECTIVE_FAKE_NCCL_H_
#define FRESHET_TESTS_COLLECTIVE_FAKE_NCCL_H_

namespace freshet {

enum class FakeFault {
  kNone,
  kHang,             // the operation does not end
  kFail,             // it fails while it runs
  kRefuse,           // its call fails
  kLate,             // NCCL takes long to accept it
  kHangToConnect,    // the rank does not connect
  kRefuseToConnect,  // its call to connect fails
  kNoMemory,         // of all ranks
};

}  // namespace freshet

// Of the library fake_nccl.
extern "C" {
// Hits operation `operation` of rank `rank`.
void FakeNcclFault(freshet::FakeFault kind, int rank, int operation);
// Communicators, streams, events and pieces of memory that exist.
int FakeNcclLiveObjects();
// From now on all memory counts as a GPU's: what tests pass too. Work on that which does not follow
// the default stream fails.
void FakeNcclMemoryIsOnGpu(bool on_gpu);
// Whether ncclCommAbort blocks, until this is called again.
void FakeNcclHangAborts(bool hang);
}

#endif  // FRESHET_TESTS_COLLECTIVE_FAKE_NCCL_H_
