#include "trainer/learner/microbatches.h"

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "model/torch_threads.h"

namespace freshet {

absl::Status TorchError(const std::exception& error) {
  return StatusOfException("training failed", error);
}

Microbatches::Microbatches(int threads, int64_t max_tokens, std::vector<at::Tensor> leaves, Use use)
    : max_tokens_(max_tokens), leaves_(std::move(leaves)), use_(std::move(use)), pool_(threads) {}

absl::Status Microbatches::ForWave(const std::vector<int64_t>& tokens, size_t first, size_t end,
                                   absl::FunctionRef<absl::Status(size_t microbatch)> task) {
  std::vector<absl::Status> results(end - first);
  std::vector<std::exception_ptr> thrown(results.size());
  pool_.For(static_cast<int64_t>(results.size()), [&](int64_t i, int) {
    const auto part = static_cast<size_t>(i);
    try {
      UseOneTorchThread();
      results[part] = WithMemoryFor([&] { return use_(tokens[first + part]); },
                                    [&] { return task(first + part); });
    } catch (...) {
      thrown[part] = std::current_exception();
    }
  });
  for (size_t part = 0; part < results.size(); ++part) {
    try {
      if (thrown[part] != nullptr) std::rethrow_exception(thrown[part]);
    } catch (const std::exception& error) {
      return TorchError(error);
    }
    FRESHET_RETURN_IF_ERROR(results[part]);
  }
  return absl::OkStatus();
}

absl::Status Microbatches::ForEach(const std::vector<int64_t>& tokens,
                                   absl::FunctionRef<absl::Status(size_t microbatch)> task) {
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    end = EndOfWave(tokens, first, threads(), max_tokens_);
    FRESHET_RETURN_IF_ERROR(ForWave(tokens, first, end, task));
  }
  return absl::OkStatus();
}

absl::Status Microbatches::ForEachInOrder(
    const std::vector<int64_t>& tokens, Task task,
    absl::FunctionRef<void(const std::vector<at::Tensor>&)> take) {
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    end = EndOfWave(tokens, first, threads(), max_tokens_);
    std::vector<std::vector<at::Tensor>> results(end - first);
    FRESHET_RETURN_IF_ERROR(ForWave(tokens, first, end, [&](size_t microbatch) -> absl::Status {
      FRESHET_ASSIGN_OR_RETURN(results[microbatch - first], task(microbatch, microbatch == first));
      return absl::OkStatus();
    }));
    for (std::vector<at::Tensor>& result : results) take(std::exchange(result, {}));
  }
  return absl::OkStatus();
}

absl::Status Microbatches::AddGradients(
    const std::vector<int64_t>& tokens,
    absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t microbatch, bool may_add)> loss) {
  // While they live, LibTorch only reads the leaves' references to them. A microbatch that does not
  // use a leaf would read its reference while another one replaces it.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
  accumulators.reserve(leaves_.size());
  for (const at::Tensor& leaf : leaves_) {
    accumulators.push_back(torch::autograd::impl::grad_accumulator(leaf));
  }
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    end = EndOfWave(tokens, first, threads(), max_tokens_);
    // The first one adds in place.
    std::vector<std::vector<at::Tensor>> others(end - first);
    FRESHET_RETURN_IF_ERROR(ForWave(tokens, first, end, [&](size_t microbatch) -> absl::Status {
      FRESHET_ASSIGN_OR_RETURN(const at::Tensor value, loss(microbatch, microbatch == first));
      if (microbatch == first) {
        value.backward();
        return absl::OkStatus();
      }
      others[microbatch - first] = torch::autograd::grad(
          {value}, leaves_, /*grad_outputs=*/{}, /*retain_graph=*/std::nullopt,
          /*create_graph=*/false, /*allow_unused=*/true);
      return absl::OkStatus();
    }));
    for (std::vector<at::Tensor>& part : others) {
      for (size_t leaf = 0; leaf < part.size(); ++leaf) {
        if (part[leaf].defined()) leaves_[leaf].mutable_grad().add_(part[leaf]);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace freshet
