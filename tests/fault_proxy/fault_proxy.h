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

// A TCP proxy on loopback that harms the connections through it, as toxiproxy does: for tests of
// what a network does to a client. It decides nothing by chance: the same bytes and the same calls
// give the same faults. A call that changes the faults returns when they are in force.
// Thread-safe.
class FaultProxy {
 public:
  // Listens on a free port and forwards to 127.0.0.1:`target_port`.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(int target_port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  int port() const { return port_; }

  // Sets the faults of one direction, for connections there are and those to come.
  void Set(FaultDirection direction, const Toxics& toxics);
  // Takes all faults away and is up again.
  void Heal();
  // Down: refuses new connections, and has closed all others.
  void SetDown(bool down);
  // Ends all connections at once with a reset.
  void ResetPeers();
  // Forwards to another port from now on; connections stay with theirs.
  void SetTarget(int target_port);

  // Connections ever accepted, bytes forwarded and swallowed, and connections ended by a fault.
  int64_t NumAccepted() const;
  int64_t NumForwarded(FaultDirection direction) const;
  int64_t NumSwallowed() const;
  int64_t NumCut() const;

 private:
  struct Settings {
    std::array<Toxics, 2> toxics;
    std::array<int64_t, 2> toxics_set = {0, 0};  // generation in which each was set
    bool down = false;
    int target_port = 0;
    int64_t resets = 0;
    int64_t generation = 0;
  };

  FaultProxy(int target_port, int port, int listener, int wake);
  // Changes the settings by `change` and waits until the thread works by them.
  template <typename Change>
  void Apply(Change change) ABSL_LOCKS_EXCLUDED(mu_);
  void Run(const std::stop_token& stop);
  // Makes the links obey `settings`, which replace `former`.
  void Obey(const Settings& settings, const Settings& former);
  void Accept(const Settings& settings);
  void Count();

  const int port_;
  const int wake_;
  int listener_;  // -1 while down; like links_, the thread's alone
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
