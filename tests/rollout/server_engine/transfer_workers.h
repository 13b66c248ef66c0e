#ifndef FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_TRANSFER_WORKERS_H_
#define FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_TRANSFER_WORKERS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "collective/communicator.h"
#include "nlohmann/json.hpp"
#include "rollout/server_engine/buffered_calls.h"

namespace freshet {

// What the workers of a server received in one update.
struct ReceivedWeights {
  std::vector<std::string> names;
  std::vector<size_t> broadcasts;  // bytes of each
  std::string bytes;
};

// The GPU workers of fake_vllm.py: ranks of the fake NCCL, as threads of this process. They divide
// an update into broadcasts as vLLM's workers do, and all must receive the same. Thread-safe.
class TransferWorkers {
 public:
  // `library`: path of the fake NCCL.
  TransferWorkers(const std::string& address, std::string library);
  ~TransferWorkers();

  // The next "init" fails before the workers join, or the next "update" after its first broadcast.
  void FailNext(const std::string& what, const std::string& error);
  int groups() const;
  std::vector<ReceivedWeights> updates() const;

 private:
  using Json = nlohmann::json;
  using Group = std::vector<std::shared_ptr<Communicator>>;

  void Run(const std::stop_token& stop, const std::string& address);
  // Returns the result for the server.
  Json Do(const std::string& what, const Json& info, const std::stop_token& stop);
  std::string Join(const Json& info, const std::stop_token& stop);
  std::string Receive(const Json& info, bool fail, ReceivedWeights& received);
  std::string TakeFault(const std::string& what);

  const std::string library_;
  size_t buffer_bytes_ = 0;
  mutable Mutex mu_;
  Group group_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> faults_ ABSL_GUARDED_BY(mu_);
  int groups_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<ReceivedWeights> updates_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_TRANSFER_WORKERS_H_
