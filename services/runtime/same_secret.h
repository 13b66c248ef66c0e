#ifndef FRESHET_SERVICES_RUNTIME_SAME_SECRET_H_
#define FRESHET_SERVICES_RUNTIME_SAME_SECRET_H_

#include <openssl/crypto.h>

#include <string_view>

namespace freshet::runtime {

// Whether they are equal. The time it takes tells nothing about `secret` but its length.
inline bool SameSecret(std::string_view given, std::string_view secret) {
  return given.size() == secret.size() &&
         CRYPTO_memcmp(given.data(), secret.data(), secret.size()) == 0;
}

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_SAME_SECRET_H_
