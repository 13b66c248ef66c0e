#ifndef FRESHET_BASE_DIGEST_H_
#define FRESHET_BASE_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace freshet {

// Incremental SHA-256 (FIPS 180-4). Confined to one thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Update(std::string_view bytes);
  // Lower-case hex of all bytes so far. Do not use the object afterwards.
  std::string FinishHex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Lower-case hex SHA-256 of `bytes`.
std::string Sha256Hex(std::string_view bytes);

// Lower-case hex SHA-256 of the file's contents, read in chunks. NOT_FOUND if it cannot be read.
absl::StatusOr<std::string> Sha256File(const std::string& path);

// 64-bit XXH3: fast, not cryptographic. Used for bucket and blob checksums.
uint64_t Xxh3(const void* data, size_t size, uint64_t seed = 0);

// 16 lower-case hex digits.
std::string Hex64(uint64_t value);

}  // namespace freshet

#endif  // FRESHET_BASE_DIGEST_H_
