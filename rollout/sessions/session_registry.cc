#include "rollout/sessions/session_registry.h"

#include <cstdint>
#include <random>
#include <utility>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr std::string_view kKeyPrefix = "session-";

// From the kernel's generator.
std::string NewKey() {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  return StrCat(kKeyPrefix, Hex64(word()), Hex64(word()));
}

}  // namespace

SessionRegistry::SessionRegistry(const Tokenizer& tokenizer, size_t max_sessions)
    : tokenizer_(tokenizer), max_sessions_(max_sessions) {}

absl::StatusOr<std::string> SessionRegistry::Open(SessionOptions options) {
  std::string key = NewKey();
  auto session = std::make_shared<Session>(std::move(options), tokenizer_);
  const MutexLock lock(mu_);
  if (sessions_.size() >= max_sessions_) {
    return ResourceExhausted(max_sessions_, " sessions are open, which is the limit");
  }
  sessions_[Sha256Hex(key)] = std::move(session);
  return key;
}

SessionRecord SessionRegistry::Close(const std::string& key) {
  std::shared_ptr<Session> session;
  {
    const MutexLock lock(mu_);
    const auto found = sessions_.find(Sha256Hex(key));
    if (found == sessions_.end()) return {};
    session = std::move(found->second);
    sessions_.erase(found);
  }
  return session->Close();
}

absl::StatusOr<std::shared_ptr<Session>> SessionRegistry::Find(std::string_view key) const {
  if (!key.starts_with(kKeyPrefix)) return nullptr;
  const std::string digest = Sha256Hex(key);
  const MutexLock lock(mu_);
  const auto found = sessions_.find(digest);
  if (found == sessions_.end()) {
    return Session::Ended();
  }
  return found->second;
}

size_t SessionRegistry::size() const {
  const MutexLock lock(mu_);
  return sessions_.size();
}

}  // namespace freshet
