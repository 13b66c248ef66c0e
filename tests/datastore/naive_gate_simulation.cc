#include "tests/datastore/naive_gate_simulation.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "tests/datastore/event_queue.h"

namespace freshet {
namespace {

class NaiveGate {
 public:
  explicit NaiveGate(const SimulationOptions& options)
      : options_(options), dice_(options.seed * 7919 + 17) {
    engines_.resize(static_cast<size_t>(options.num_engines), 0);
  }

  NaiveGateResult Run() {
    for (size_t i = 0; i < engines_.size(); ++i) Ask(i);
    Train();
    while (version_ < options_.steps && queue_.now() < 1e6 && queue_.Step()) {
    }
    result_.finished = version_ == options_.steps;
    return result_;
  }

 private:
  void Ask(size_t engine) {
    const int64_t wanted = 1 + dice_.Below(3);
    for (int64_t i = 0; i < wanted; ++i) {
      if (accepted_ + running_ >= (options_.eta + version_ + 1) * options_.groups_per_step) break;
      ++running_;
      double longest = 0;
      for (int32_t sample = 0; sample < options_.group_size; ++sample) {
        longest = std::max(longest, SampleSeconds(dice_));
      }
      queue_.After(longest + dice_.Uniform(0.05, 0.6), [this, born = engines_[engine]] {
        --running_;
        ++accepted_;
        finished_.push_back(born);
      });
    }
    queue_.After(dice_.Uniform(0.1, 0.5), [this, engine] { Ask(engine); });
  }
  void Train() {
    std::erase_if(finished_, [this](int64_t born) {
      if (version_ - born <= options_.eta) return false;
      --accepted_;
      ++result_.dropped;
      return true;
    });
    if (static_cast<int64_t>(finished_.size()) < options_.groups_per_step) {
      queue_.After(0.1, [this] { Train(); });
      return;
    }
    finished_.erase(finished_.begin(), finished_.begin() + options_.groups_per_step);
    queue_.After(dice_.Uniform(0.3, 1.0), [this] {
      ++version_;
      result_.trained += options_.groups_per_step;
      for (size_t engine = 0; engine < engines_.size(); ++engine) {
        queue_.After(SyncSeconds(dice_), [this, engine, version = version_] {
          engines_[engine] = std::max(engines_[engine], version);
        });
      }
      Train();
    });
  }

  const SimulationOptions options_;
  Dice dice_;
  EventQueue queue_;
  NaiveGateResult result_;
  std::vector<int64_t> engines_;
  std::deque<int64_t> finished_;  // sampling version of each group, in completion order
  int64_t accepted_ = 0;
  int64_t running_ = 0;
  int64_t version_ = 0;
};

}  // namespace

NaiveGateResult SimulateNaiveGate(const SimulationOptions& options) {
  return NaiveGate(options).Run();
}

}  // namespace freshet
