#ifndef FRESHET_TESTS_FAULT_PROXY_FAULT_PROXY_H_
#define FRESHET_TESTS_FAULT_PROXY_FAULT_PROXY_H_

#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "tests/fault_proxy/fault_link.h"

namespace freshet {

// A TCP proxy on loopback that injects faults, like toxiproxy. Deterministic: the same bytes and
// calls give the same faults. Calls that change faults return once they are in effect. Thread-safe.
class FaultProxy {
 public:
  // Listens on a free port and forwards to 127.0.0.1:`target_port`.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(int target_port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  int port() const { return port_; }

  // Sets the faults of one direction for existing and new connections.
  void Set(FaultDirection direction, const Toxics& toxics);
  // Removes all faults and accepts connections again.
  void Heal();
  // `down`: closes all connections and refuses new ones.
  void SetDown(bool down);
  // Ends all connections with a reset.
  void ResetPeers();
  // Forwards new connections to another port.
  void SetTarget(int target_port);

  // Connections accepted, bytes forwarded and discarded, and connections ended by a fault.
  int64_t NumAccepted() const;
  int64_t NumForwarded(FaultDirection direction) const;
  int64_t NumSwallowed() const;
  int64_t NumCut() const;

 private:
  struct Settings {
    std::array<Toxics, 2> toxics;
    std::array<int64_t, 2> toxics_set = {0, 0};  // generation of each
    bool down = false;
    int target_port = 0;
    int64_t resets = 0;
    int64_t generation = 0;
  };

  FaultProxy(int target_port, int port, int listener, int wake);
  // Applies `change` to the settings and waits until the thread uses them.
  template <typename Change>
  void Apply(Change change) ABSL_LOCKS_EXCLUDED(mu_);
  void Run(const std::stop_token& stop);
  // Applies `settings` to the links; `former` are the settings in effect.
  void Obey(const Settings& settings, const Settings& former);
  void Accept(const Settings& settings);
  void Count();

  const int port_;
  const int wake_;
  int listener_;  // -1 while down; used by the thread only, like links_
  std::vector<std::unique_ptr<FaultLink>> links_;

  mutable Mutex mu_;
  CondVar applied_changed_;
  Settings settings_ ABSL_GUARDED_BY(mu_);
  int64_t applied_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_accepted_ ABSL_GUARDED_BY(mu_) = 0;
  std::array<int64_t, 2> num_forwarded_ ABSL_GUARDED_BY(mu_) = {0, 0};
  int64_t num_swallowed_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_cut_ ABSL_GUARDED_BY(mu_) = 0;
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_FAULT_PROXY_FAULT_PROXY_H_
