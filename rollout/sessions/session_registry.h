#ifndef FRESHET_ROLLOUT_SESSIONS_SESSION_REGISTRY_H_
#define FRESHET_ROLLOUT_SESSIONS_SESSION_REGISTRY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "rollout/sessions/session.h"

namespace freshet {

// The open sessions of an endpoint, by the API key of their requests. Thread-safe.
class SessionRegistry {
 public:
  // The tokenizer must outlive the registry.
  SessionRegistry(const Tokenizer& tokenizer, size_t max_sessions);

  // Opens a session and returns its key, 128 bits of which are random. RESOURCE_EXHAUSTED:
  // max_sessions are open.
  absl::StatusOr<std::string> Open(SessionOptions options) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends a session and its open request. Later requests with its key are refused. Empty if it is
  // not open.
  SessionRecord Close(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);
  // The session of an API key. Null: no session has this key. UNAUTHENTICATED: its session has
  // ended.
  absl::StatusOr<std::shared_ptr<Session>> Find(std::string_view key) const
      ABSL_LOCKS_EXCLUDED(mu_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const Tokenizer& tokenizer_;
  const size_t max_sessions_;
  mutable Mutex mu_;
  // By digest, so that the time of a search says nothing about keys.
  std::map<std::string, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SESSIONS_SESSION_REGISTRY_H_
