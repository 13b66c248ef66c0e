#include "collective/nccl_backend.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/nccl_communicator.h"

namespace freshet {
namespace {

class NcclBackend final : public CommunicatorBackend {
 public:
  NcclBackend(std::shared_ptr<const NcclLibrary> library, int device)
      : library_(std::move(library)), device_(device) {}

  absl::StatusOr<std::string> NewRendezvous() override {
    FRESHET_ASSIGN_OR_RETURN(const NcclUniqueId id, MakeNcclUniqueId(*library_));
    return std::string(id.bytes.data(), id.bytes.size());
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) override {
    NcclOptions options;
    if (place.rendezvous.size() != options.id.bytes.size()) {
      return InvalidArgument("the rendezvous of NCCL has ", options.id.bytes.size(), " bytes, not ",
                             place.rendezvous.size());
    }
    std::copy(place.rendezvous.begin(), place.rendezvous.end(), options.id.bytes.begin());
    options.rank = place.rank;
    options.size = place.size;
    options.device = device_;
    options.connect_timeout = place.timeout;
    options.stop = place.stop;
    options.staged_bytes = static_cast<size_t>(place.staged_bytes);
    if (place.undivided) options.operation_bytes = std::numeric_limits<size_t>::max();
    return ConnectNccl(library_, options);
  }

 private:
  const std::shared_ptr<const NcclLibrary> library_;
  const int device_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenNcclBackend(const NcclLibraryPaths& paths,
                                                                     int device) {
  absl::StatusOr<std::shared_ptr<const NcclLibrary>> library = NcclLibrary::Load(paths);
  if (!library.ok()) return absl::UnimplementedError(Message(library.status()));
  if (const CudaError error = (*library)->set_device(device); error != kCudaSuccess) {
    return absl::UnimplementedError(
        StrCat("GPU ", device, " cannot be used: ", (*library)->cuda_error_string(error)));
  }
  return std::make_shared<NcclBackend>(*std::move(library), device);
}

}  // namespace freshet
