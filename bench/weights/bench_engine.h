#ifndef FRESHET_BENCH_WEIGHTS_BENCH_ENGINE_H_
#define FRESHET_BENCH_WEIGHTS_BENCH_ENGINE_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "nlohmann/json.hpp"

namespace freshet {

inline constexpr char kBenchJob[] = "bench";
inline constexpr char kBenchHost[] = "bench-host";

// A channel to an engine, kept until the process ends.
std::shared_ptr<grpc::Channel> BenchChannel(const std::string& address);

// Runs in a process of its own. Serves the weight plane and, with `batch` above 0, generates that
// many samples of `model` without end from the first version that it takes. Prints its address;
// then answers each line of standard input with a JSON object (see EngineProcess), until its end.
int RunBenchEngine(const std::string& model, int batch);

// Such a process. Not thread-safe.
class EngineProcess {
 public:
  EngineProcess(const std::string& model, int batch);
  // Ends it by closing its standard input.
  ~EngineProcess();
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  const std::string& address() const { return address_; }
  void Kill();
  // {"version": the newest that it has taken, "versions": number taken, and since the last call
  // "tokens", "step_seconds": median step, "gap_seconds": longest time between the ends of two
  // steps}.
  nlohmann::json Stats();

 private:
  std::string ReadLine();

  int pid_ = 0;
  int stdin_ = -1;
  int stdout_ = -1;
  std::string address_;
};

}  // namespace freshet

#endif  // FRESHET_BENCH_WEIGHTS_BENCH_ENGINE_H_
