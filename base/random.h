#ifndef FRESHET_BASE_RANDOM_H_
#define FRESHET_BASE_RANDOM_H_

#include <cstdint>

namespace freshet {

// SplitMix64 output function (Steele, Lea, Flood, OOPSLA 2014): a bijective 64-bit mixer.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Counter-based random bits: the same key always gives the same bits. A sampled token therefore
// depends on (seed, ordinal, sample, position) and not on batching.
constexpr uint64_t RandomBits(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  return Mix64(Mix64(Mix64(Mix64(seed) ^ a) ^ b) ^ c);
}

// Uniform in [0, 1) with 53 bits.
constexpr double ToUniform(uint64_t bits) {
  return static_cast<double>(bits >> 11) * (1.0 / 9007199254740992.0);
}

}  // namespace freshet

#endif  // FRESHET_BASE_RANDOM_H_
