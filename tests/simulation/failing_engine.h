#ifndef FRESHET_TESTS_SIMULATION_FAILING_ENGINE_H_
#define FRESHET_TESTS_SIMULATION_FAILING_ENGINE_H_

#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "tests/simulation/forwarding_engine.h"

namespace freshet {

struct EngineFaults {
  int64_t one_in = 50;   // prompts whose ordinal is one_in - 1 modulo one_in fail
  bool at_poll = false;  // Poll fails while such a prompt is in the engine; else Submit fails
  bool throws = false;   // throws std::bad_alloc; else returns INTERNAL

  // Parses "ONE_IN submit|poll throw|internal".
  static EngineFaults Parse(const std::string& text) {
    EngineFaults faults;
    faults.one_in = std::stoll(text);
    faults.at_poll = text.find(" poll ") != std::string::npos;
    faults.throws = text.ends_with(" throw");
    return faults;
  }
};

// An engine that fails for selected prompts. Confined to one thread.
class FailingEngine final : public ForwardingEngine {
 public:
  FailingEngine(std::unique_ptr<InferenceEngine> engine, const EngineFaults& faults)
      : ForwardingEngine(std::move(engine)), faults_(faults) {}

  absl::Status Submit(GenerationRequest request) override {
    const bool bad = request.ordinal % faults_.one_in == faults_.one_in - 1;
    if (bad && !faults_.at_poll) return Fail();
    const int64_t id = request.id;
    absl::Status status = ForwardingEngine::Submit(std::move(request));
    if (bad && status.ok()) bad_.insert(id);
    return status;
  }
  absl::StatusOr<std::vector<GenerationOutput>> Poll() override {
    if (!bad_.empty()) return Fail();
    return ForwardingEngine::Poll();
  }
  std::vector<GenerationOutput> Cancel(int64_t request_id) override {
    bad_.erase(request_id);
    return ForwardingEngine::Cancel(request_id);
  }

 private:
  absl::Status Fail() const {
    if (faults_.throws) throw std::bad_alloc();
    return Internal("a kernel of the engine failed");
  }

  const EngineFaults faults_;
  std::set<int64_t> bad_;  // failing requests in the engine
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_FAILING_ENGINE_H_
