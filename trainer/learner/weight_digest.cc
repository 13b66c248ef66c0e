#include "trainer/learner/weight_digest.h"

#include <algorithm>
#include <vector>

#include "base/digest.h"

namespace freshet {
namespace {

constexpr int64_t kChunkElements = int64_t{2} << 20;
constexpr int64_t kMultiplier = 0x5851f42d4c957f2d;

}  // namespace

uint64_t DigestOfWeights(const at::Tensor& flat) {
  return flat.is_cpu() ? Xxh3(flat.const_data_ptr(), flat.nbytes()) : AtenDigest(flat);
}

uint64_t AtenDigest(const at::Tensor& flat) {
  const at::NoGradGuard no_grad;
  const at::Tensor bits = flat.view(flat.element_size() == 2 ? at::kShort : at::kInt);
  const int64_t length = bits.numel();
  const at::Tensor factors = at::arange(std::min(length, kChunkElements),
                                        at::TensorOptions(flat.device()).dtype(at::kLong))
                                 .mul_(kMultiplier)
                                 .bitwise_or_(1);
  std::vector<at::Tensor> sums;
  for (int64_t begin = 0; begin < length; begin += kChunkElements) {
    const int64_t size = std::min(kChunkElements, length - begin);
    sums.push_back((bits.narrow(0, begin, size).to(at::kLong) * factors.narrow(0, 0, size)).sum());
  }
  if (sums.empty()) return 0;
  const at::Tensor all = at::stack(sums).cpu();
  return Xxh3(all.const_data_ptr(), all.nbytes());
}

}  // namespace freshet
