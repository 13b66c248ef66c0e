#include "model/varlen_attention.h"

#include <algorithm>
#include <optional>

#include "model/tensor_convert.h"

namespace freshet {
namespace {

constexpr int64_t kMostFlashDim = 256;
constexpr int64_t kCausalFromBottomRight = 2;  // of _efficient_attention_forward

}  // namespace

VarlenAttention::VarlenAttention(const std::vector<VarlenSequence>& sequences, at::Device device,
                                 at::ScalarType type)
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
  in_order_ = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    in_order_ = in_order_ && rows[i] == static_cast<int64_t>(i);
  }
  key_rows_ = ToTensor(rows).to(device);
  query_starts_ = ToTensor(query_starts).to(device, at::kInt);
  key_starts_ = ToTensor(key_starts).to(device, at::kInt);
}

bool VarlenAttention::Supports(int64_t dim, int64_t window) const {
  if (!key_rows_.is_cuda()) return false;
  if (type_ == at::kBFloat16) return dim % 8 == 0 && dim <= kMostFlashDim;
  return dim % 4 == 0 && window == 0;
}

at::Tensor VarlenAttention::Attend(int64_t window, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v) const {
  const int64_t heads = q.size(1);
  const int64_t dim = q.size(2);
  const auto keys = [&](const at::Tensor& x) {
    const at::Tensor typed = x.to(type_);
    const bool all = in_order_ && x.size(0) == key_rows_.size(0);
    return all ? typed : typed.index_select(0, key_rows_);
  };
  const at::Tensor q_typed = q.to(type_);
  if (type_ == at::kBFloat16) {
    std::optional<int64_t> left, right;
    if (window > 0) {
      left = window - 1;
      right = 0;
    }
    return std::get<0>(at::_flash_attention_forward(
                           q_typed, keys(k), keys(v), query_starts_, key_starts_, most_queries_,
                           most_keys_, /*dropout_p=*/0.0, /*is_causal=*/true,
                           /*return_debug_mask=*/false, /*scale=*/std::nullopt, left, right))
        .view({q.size(0), heads * dim});
  }
  // The kernel has as many key heads as query heads.
  const auto repeated = [&](const at::Tensor& x) {
    const at::Tensor gathered = keys(x);
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
