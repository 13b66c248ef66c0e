#include "collective/open_backend.h"

#include "base/str_cat.h"
#include "collective/gloo_backend.h"
#include "collective/nccl_backend.h"

namespace freshet {

absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenBackend(const std::string& name) {
  if (name == "gloo") return MakeGlooBackend();
  if (name == "nccl") return OpenNcclBackend();
  return absl::UnimplementedError(
      StrCat("unknown broadcast backend '", name.substr(0, 100), "'; use nccl or gloo"));
}

}  // namespace freshet
