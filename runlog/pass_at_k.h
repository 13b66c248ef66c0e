#ifndef FRESHET_RUNLOG_PASS_AT_K_H_
#define FRESHET_RUNLOG_PASS_AT_K_H_

#include <cstdint>

namespace freshet {

// Estimates pass@k of a prompt, the probability that at least one of k samples is correct, from n
// samples of which c are correct:
//
//   pass@k = 1 - C(n - c, k) / C(n, k)
//
// The estimate is unbiased (Chen et al. 2021, arXiv:2107.03374, section 2.1). The quotient is
// computed as a product of min(c, k) factors in [0, 1], so that nothing overflows.
// Requires 0 <= c <= n and 1 <= k <= n. Pure.
double PassAtK(int64_t n, int64_t c, int64_t k);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_PASS_AT_K_H_
