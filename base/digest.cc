#include "base/digest.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <array>
#include <cstdio>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  FRESHET_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(std::string_view bytes) {
  FRESHET_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::FinishHex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  FRESHET_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), size});
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.FinishHex();
}

absl::StatusOr<std::string> Sha256File(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (file == nullptr) return NotFound(path, ": cannot be opened");
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  size_t read = 0;
  while ((read = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0) {
    hash.Update({buffer.data(), read});
  }
  if (std::ferror(file.get()) != 0) return NotFound(path, ": cannot be read");
  return hash.FinishHex();
}

uint64_t Xxh3(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

std::string Hex64(uint64_t value) { return StrCat(absl::Hex(value, absl::kZeroPad16)); }

}  // namespace freshet
