#ifndef FRESHET_TESTS_ROLLOUT_ENGINE_RANDOM_NUMBERS_H_
#define FRESHET_TESTS_ROLLOUT_ENGINE_RANDOM_NUMBERS_H_

#include <cstdint>
#include <vector>

#include "base/random.h"

namespace freshet {

// In [-1, 1).
inline std::vector<float> RandomNumbers(int64_t count, uint64_t seed) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(
        static_cast<float>(2 * ToUniform(RandomBits(seed, static_cast<uint64_t>(i), 0)) - 1));
  }
  return numbers;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_ENGINE_RANDOM_NUMBERS_H_
