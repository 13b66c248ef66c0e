#include "trainer/learner/state_stream.h"

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/learner/block_exchange.h"
#include "trainer/learner/microbatches.h"
#include "trainer/learner/step_plan.h"

namespace freshet {
namespace {

// How long the others may take to answer: chunks of training may be before theirs on a link.
constexpr absl::Duration kAnswerPatience = kShareTimeout;

// What rank 0 asks for.
struct Request {
  int32_t column = -1;  // -1: nothing more
  int32_t block = 0;
};

absl::Status Exchange(Communicator& over, Request& request, absl::Duration timeout) {
  return over.Broadcast(std::as_writable_bytes(std::span(&request, 1)), /*root=*/0, timeout);
}

}  // namespace

GatheredBlocks::GatheredBlocks(Communicator& over, Communicator& group, ShardLayout layout,
                               LentParts parts)
    : over_(over), group_(group), layout_(std::move(layout)), parts_(std::move(parts)) {}

GatheredBlocks::~GatheredBlocks() {
  const MutexLock lock(mu_);
  if (!detached_.ok()) return;
  Request end;
  const absl::Status told = Exchange(over_, end, kAnswerPatience);
  if (!told.ok()) group_.Abort(Message(told));  // the others would wait
}

absl::StatusOr<at::Tensor> GatheredBlocks::Read(StateColumn column, size_t block) {
  const MutexLock lock(mu_);
  if (!detached_.ok()) return detached_;
  absl::StatusOr<at::Tensor> gathered = Gather(column, block);
  if (gathered.ok()) return gathered;
  group_.Abort(Message(gathered.status()));
  detached_ = StatusOf(absl::StatusCode::kUnavailable, Message(gathered.status()),
                       "; a part of the model's state is lost");
  return detached_;
}

absl::StatusOr<at::Tensor> GatheredBlocks::Gather(StateColumn column, size_t block) {
  const at::NoGradGuard no_grad;
  Request request = {static_cast<int32_t>(column), static_cast<int32_t>(block)};
  FRESHET_RETURN_IF_ERROR(Exchange(over_, request, kAnswerPatience));
  return GatherBlock(over_, layout_, block, parts_.Part(column), at::kCPU, kAnswerPatience);
}

void GatheredBlocks::Detach(const char* reason) {
  over_.Abort(reason);  // ends a read in progress
  const MutexLock lock(mu_);
  if (detached_.ok()) detached_ = absl::AbortedError(reason);
}

absl::Status ServeBlocks(Communicator& over, const ShardLayout& layout, const LentParts& parts) {
  const at::NoGradGuard no_grad;
  while (true) {
    Request request;
    FRESHET_RETURN_IF_ERROR(Exchange(over, request, kWritePatience));
    if (request.column < 0) return absl::OkStatus();
    const auto block = static_cast<size_t>(request.block);
    if (static_cast<size_t>(request.column) >= kStateColumns.size() || request.block < 0 ||
        block >= layout.blocks().size()) {
      absl::Status status =
          DataLoss("rank 0 asks for block ", request.block, " of column ", request.column);
      over.Abort(Message(status));
      return status;
    }
    FRESHET_RETURN_IF_ERROR(GatherBlock(over, layout, block,
                                        parts.Part(static_cast<StateColumn>(request.column)),
                                        at::kCPU, kAnswerPatience)
                                .status());
  }
}

}  // namespace freshet
