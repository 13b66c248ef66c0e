#ifndef FRESHET_TRAINER_LEARNER_MICROBATCH_SIZES_H_
#define FRESHET_TRAINER_LEARNER_MICROBATCH_SIZES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/packed_batch.h"

namespace freshet {

// How a learner of `num_parameters` computes a batch. Pure.
//
// Maximum number of tokens of a microbatch, at most `max_tokens`: small enough for several to be
// computed at once within max_tokens, unless the gradients are too large for a copy each. Does not
// depend on the number of threads, which therefore does not change the result.
int64_t MicrobatchTokens(const std::vector<PackTree>& trees, int64_t max_tokens,
                         int64_t num_parameters);
// The same for trees of `tokens` tokens together, of which the largest has `largest`.
int64_t MicrobatchTokens(int64_t tokens, int64_t largest, int64_t max_tokens,
                         int64_t num_parameters);
// Threads for microbatches, at least 1: `threads`, or fewer if copies of the gradients would take
// too much memory.
int MicrobatchThreads(int threads, int64_t num_parameters);

// The end of the microbatches from `first` on that are computed at once: at most `threads`, with at
// most `max_tokens` of their `tokens` together unless there is only one.
size_t EndOfWave(const std::vector<int64_t>& tokens, size_t first, int threads, int64_t max_tokens);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_MICROBATCH_SIZES_H_
