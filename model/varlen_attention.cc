#include "model/varlen_attention.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "model/tensor_convert.h"

namespace freshet {
namespace {

constexpr int64_t kMostFlashDim = 256;
constexpr int64_t kCausalFromBottomRight = 2;  // of _efficient_attention_forward

// Which places of `rows` name each of num_rows rows: those of row r are places[starts[r]] to
// places[starts[r + 1] - 1]. Pure.
struct Copies {
  std::vector<int64_t> starts, places;
};
Copies CopiesOf(const std::vector<int64_t>& rows, int64_t num_rows) {
  Copies copies;
  copies.starts.assign(static_cast<size_t>(num_rows) + 1, 0);
  for (const int64_t row : rows) ++copies.starts[static_cast<size_t>(row) + 1];
  std::partial_sum(copies.starts.begin(), copies.starts.end(), copies.starts.begin());
  copies.places.resize(rows.size());
  std::vector<int64_t> next = copies.starts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    copies.places[static_cast<size_t>(next[row]++)] = static_cast<int64_t>(i);
  }
  return copies;
}

}  // namespace

VarlenAttention::VarlenAttention(const std::vector<VarlenSequence>& sequences, int64_t num_rows,
                                 at::Device device, at::ScalarType type, bool differentiable)
    : type_(type) {
  std::vector<int64_t> rows;
  std::vector<int64_t> query_starts = {0};
  std::vector<int64_t> key_starts = {0};
  for (const VarlenSequence& sequence : sequences) {
    rows.insert(rows.end(), sequence.keys.begin(), sequence.keys.end());
    query_starts.push_back(query_starts.back() + sequence.queries);
    key_starts.push_back(std::ssize(rows));
    most_queries_ = std::max(most_queries_, sequence.queries);
    most_keys_ = std::max<int64_t>(most_keys_, std::ssize(sequence.keys));
  }
  in_order_ = std::ssize(rows) == num_rows;
  for (size_t i = 0; i < rows.size() && in_order_; ++i) {
    in_order_ = rows[i] == static_cast<int64_t>(i);
  }
  keys_.rows = ToTensor(rows).to(device);
  if (differentiable && !in_order_) {
    const auto [starts, places] = CopiesOf(rows, num_rows);
    keys_.starts = ToTensor(starts).to(device, at::kInt);
    keys_.places = ToTensor(places).to(device, at::kInt);
  }
  query_starts_ = ToTensor(query_starts).to(device, at::kInt);
  key_starts_ = ToTensor(key_starts).to(device, at::kInt);
}

bool VarlenAttention::Supports(int64_t dim, int64_t window) const {
  if (!keys_.rows.is_cuda()) return false;
  if (type_ == at::kBFloat16) return dim % 8 == 0 && dim <= kMostFlashDim;
  return dim % 4 == 0 && window == 0;
}

at::Tensor VarlenAttention::Gather(const at::Tensor& x) const {
  const at::Tensor typed = x.to(type_);
  if (in_order_) return typed;
  const CudaKernels* kernels = keys_.starts.defined() ? CudaKernels::Get() : nullptr;
  return kernels == nullptr ? typed.index_select(0, keys_.rows) : CudaGatherRows(typed, keys_);
}

at::Tensor VarlenAttention::Attend(int64_t window, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v) const {
  const int64_t heads = q.size(1);
  const int64_t dim = q.size(2);
  const at::Tensor q_typed = q.to(type_);
  if (type_ == at::kBFloat16) {
    std::optional<int64_t> left, right;
    if (window > 0) {
      left = window - 1;
      right = 0;
    }
    return std::get<0>(at::_flash_attention_forward(
                           q_typed, Gather(k), Gather(v), query_starts_, key_starts_, most_queries_,
                           most_keys_, /*dropout_p=*/0.0, /*is_causal=*/true,
                           /*return_debug_mask=*/false, /*scale=*/std::nullopt, left, right))
        .view({q.size(0), heads * dim});
  }
  // The kernel has as many key heads as query heads.
  const auto repeated = [&](const at::Tensor& x) {
    const at::Tensor gathered = Gather(x);
    return gathered.unsqueeze(2)
        .expand({-1, -1, heads / x.size(1), -1})
        .reshape({1, gathered.size(0), heads, dim});
  };
  return std::get<0>(at::_efficient_attention_forward(
                         q_typed.unsqueeze(0), repeated(k), repeated(v), /*bias=*/std::nullopt,
                         query_starts_, key_starts_, most_queries_, most_keys_, /*dropout_p=*/0.0,
                         kCausalFromBottomRight,
                         /*compute_log_sumexp=*/at::GradMode::is_enabled()))
      .view({q.size(0), heads * dim});
}

}  // namespace freshet
