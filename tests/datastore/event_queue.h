#ifndef FRESHET_TESTS_DATASTORE_EVENT_QUEUE_H_
#define FRESHET_TESTS_DATASTORE_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/random.h"

namespace freshet {

// A discrete-event queue. Events with equal times run in scheduling order.
class EventQueue {
 public:
  using Action = std::function<void()>;

  double now() const { return now_; }
  void After(double seconds, Action action) {
    events_.push({now_ + seconds, next_seq_++, std::move(action)});
  }
  bool Step() {
    if (events_.empty()) return false;
    Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.action();
    return true;
  }

 private:
  struct Event {
    double time;
    uint64_t seq;
    Action action;
    bool operator<(const Event& other) const {  // reversed: priority_queue pops the largest
      return time != other.time ? time > other.time : seq > other.seq;
    }
  };
  double now_ = 0;
  uint64_t next_seq_ = 0;
  std::priority_queue<Event> events_;
};

// Uniform random numbers, reproducible from the seed on every platform.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  double Uniform() { return ToUniform(RandomBits(seed_, count_++)); }
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  bool Chance(double p) { return Uniform() < p; }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Uniform() * static_cast<double>(n)); }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

// Seconds to generate one sample. One in ten is a straggler.
inline double SampleSeconds(Dice& dice) {
  const double seconds = dice.Uniform(0.5, 1.5);
  return dice.Chance(0.1) ? seconds * dice.Uniform(5, 20) : seconds;
}

// Seconds from a commit until an engine has loaded the version.
inline double SyncSeconds(Dice& dice) {
  return dice.Chance(0.1) ? dice.Uniform(2, 15) : dice.Uniform(0.05, 0.8);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_EVENT_QUEUE_H_
