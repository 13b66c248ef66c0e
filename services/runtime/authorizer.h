#ifndef FRESHET_SERVICES_RUNTIME_AUTHORIZER_H_
#define FRESHET_SERVICES_RUNTIME_AUTHORIZER_H_

#include <grpcpp/security/auth_metadata_processor.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/base/mutex.h"
#include "services/runtime/authorization_policy.h"

namespace freshet::runtime {

// Lets a call through when the policy file allows it; else the call ends with PERMISSION_DENIED.
// The file is read again when it has changed, looked at once per `refresh`; one that cannot be used
// is logged and counted, and the last good one stays in force. Thread-safe.
class Authorizer final : public grpc::AuthMetadataProcessor {
 public:
  // `registry` (may be null) gets freshet_authz_denied_total and freshet_authz_reloads_total.
  // Returns what reading and parsing say about the file, naming it.
  static absl::StatusOr<std::shared_ptr<Authorizer>> Create(
      const std::string& path, absl::Duration refresh, prometheus::Registry* registry,
      const Clock& clock = SystemClock::Get());

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

  // The decision in force now for those principals, after a look at the file.
  AuthorizationDecision Decide(const std::vector<std::string>& principals, const std::string& path);

 private:
  // What tells one state of a file from another.
  struct Stamp {
    int64_t mtime_ns = 0;
    int64_t size = 0;
    uint64_t inode = 0;
    bool operator==(const Stamp&) const = default;
  };
  Authorizer(const std::string& path, absl::Duration refresh, const Clock& clock)
      : path_(path), refresh_(refresh), clock_(clock) {}
  static Stamp StampOf(const std::string& path);
  static absl::StatusOr<AuthorizationPolicy> Load(const std::string& path);
  std::shared_ptr<const AuthorizationPolicy> Current() ABSL_LOCKS_EXCLUDED(mu_);

  const std::string path_;
  const absl::Duration refresh_;
  const Clock& clock_;
  prometheus::Counter* denied_ = nullptr;
  prometheus::Counter* reloads_ok_ = nullptr;
  prometheus::Counter* reloads_failed_ = nullptr;
  Mutex mu_;
  std::shared_ptr<const AuthorizationPolicy> policy_ ABSL_GUARDED_BY(mu_);
  Stamp stamp_ ABSL_GUARDED_BY(mu_);
  absl::Time next_look_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_AUTHORIZER_H_
