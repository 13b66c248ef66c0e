#include "runlog/pass_at_k.h"

#include <algorithm>

namespace freshet {

double PassAtK(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1;  // any k samples have a correct one
  // C(n - c, k) / C(n, k) is symmetric in c and k.
  const int64_t most = std::max(c, k);
  double none_correct = 1;
  for (int64_t i = 0; i < std::min(c, k); ++i) {
    none_correct *= static_cast<double>(n - most - i) / static_cast<double>(n - i);
  }
  return 1 - none_correct;
}

}  // namespace freshet
