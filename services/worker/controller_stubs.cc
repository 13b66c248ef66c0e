#include "services/worker/controller_stubs.h"

#include "base/status_macros.h"

namespace freshet::runtime {
namespace {

// Bounded, because leaders name addresses; few controllers exist in practice.
constexpr size_t kMaxStubs = 64;

}  // namespace

absl::StatusOr<std::shared_ptr<ControllerStubs::Stub>> ControllerStubs::Get(
    const std::string& address) {
  MutexLock lock(mu_);
  if (const auto found = stubs_.find(address); found != stubs_.end()) return found->second;
  FRESHET_ASSIGN_OR_RETURN(auto channel, MakeChannel(address, options_));
  if (stubs_.size() >= kMaxStubs) stubs_.clear();
  return stubs_[address] = std::make_shared<Stub>(channel);
}

void ControllerStubs::CancelAll() {
  MutexLock lock(mu_);
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

void ControllerStubs::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  CancelAll();
}

bool ControllerStubs::Enter(grpc::ClientContext& context) {
  MutexLock lock(mu_);
  return !stopped_ && running_.insert(&context).second;
}

void ControllerStubs::Leave(grpc::ClientContext& context) {
  MutexLock lock(mu_);
  running_.erase(&context);
}

}  // namespace freshet::runtime
