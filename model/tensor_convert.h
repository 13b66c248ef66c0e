#ifndef FRESHET_MODEL_TENSOR_CONVERT_H_
#define FRESHET_MODEL_TENSOR_CONVERT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/torch.h"

namespace freshet {

// Copies between vectors and one-dimensional tensors. ToTensor's are on the CPU.
inline at::Tensor ToTensor(const std::vector<int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}
inline at::Tensor ToTensor(const std::vector<float>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<float>());
  return tensor;
}
inline std::vector<float> ToFloats(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  const float* data = flat.const_data_ptr<float>();
  return {data, data + flat.numel()};
}

// The bytes of a contiguous tensor in host memory.
inline std::span<std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace freshet

#endif  // FRESHET_MODEL_TENSOR_CONVERT_H_
