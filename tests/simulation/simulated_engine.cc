#include "tests/simulation/simulated_engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int32_t kTokens = 8;  // vocabulary of the generated tokens; the job's must not be smaller

// Standard normal variate from two uniform ones (Box and Muller, 1958).
double Normal(uint64_t key) {
  const double u = std::max(ToUniform(RandomBits(key, 1)), 1e-12);
  const double v = ToUniform(RandomBits(key, 2));
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
}

double ThreadCpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

SimulatedEngine::SimulatedEngine(SimulatedEngineOptions options, const Clock& clock)
    : options_(options),
      clock_(clock),
      versions_(kNumLanes, PolicyVersion{-1, -1}),
      loaded_(kNumLanes, false),
      now_(clock.Now()) {
  if (options_.usage_file.empty()) return;
  usage_ =
      UniqueFd(::open(options_.usage_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
}

void SimulatedEngine::ReportUsage() {
  if (now_ - reported_ < absl::Milliseconds(100)) return;
  reported_ = now_;
  char text[32];
  const int size = std::snprintf(text, sizeof(text), "%020.6f\n", cpu_seconds_);
  FRESHET_CHECK(::pwrite(usage_.get(), text, static_cast<size_t>(size), 0) == size);
}

int64_t SimulatedEngine::Admissible(int64_t, int64_t num_samples, const SamplingParams&,
                                    int64_t most) const {
  const int64_t samples = std::max<int64_t>(num_samples, 1);
  return std::clamp<int64_t>((FreeSlots() + samples - 1) / samples, 0, most);
}

int64_t SimulatedEngine::FreeSlots() const {
  const auto taken = static_cast<int64_t>(running_.size() + waiting_.size());
  return std::max<int64_t>(options_.slots - taken, 0);
}

int64_t SimulatedEngine::Length(uint64_t key, const SamplingParams& sampling) const {
  const double drawn = options_.median_tokens * std::exp(options_.sigma * Normal(key));
  const double cap = options_.median_tokens * options_.longest_over_median;
  return std::clamp<int64_t>(std::llround(std::min(drawn, cap)), 1, sampling.max_new_tokens);
}

absl::Status SimulatedEngine::Submit(GenerationRequest request) {
  if (!loaded_[static_cast<size_t>(request.lane)]) {
    return FailedPrecondition("the lane has no weights yet");
  }
  if (Admissible(1, static_cast<int64_t>(request.sample_indices.size()), request.sampling, 1) < 1) {
    return ResourceExhausted("all slots are taken");
  }
  Advance(clock_.Now());
  for (size_t i = 0; i < request.sample_indices.size(); ++i) {
    Sequence& sequence = waiting_.emplace_back();
    sequence.request_id = request.id;
    sequence.lane = request.lane;
    sequence.sample_index = request.sample_indices[i];
    sequence.key = RandomBits(request.seed, static_cast<uint64_t>(request.ordinal),
                              static_cast<uint64_t>(sequence.sample_index));
    sequence.length = Length(sequence.key, request.sampling);
    if (!request.partials.empty()) sequence.response = std::move(request.partials[i]);
    const size_t kept = sequence.response.response_ids.size();
    sequence.done = static_cast<double>(kept);
    sequence.length = std::max(sequence.length, static_cast<int64_t>(kept) + 1);
  }
  FillSlots();
  return absl::OkStatus();
}

void SimulatedEngine::FillSlots() {
  while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < options_.slots) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

double SimulatedEngine::SecondsPerToken() const {
  return (options_.base_ms + options_.per_sequence_ms * static_cast<double>(running_.size())) *
         options_.time_scale * 1e-3;
}

// Gives all running sequences the same number of new tokens.
void SimulatedEngine::Advance(absl::Time now) {
  const double tokens = absl::ToDoubleSeconds(now - now_) / SecondsPerToken();
  now_ = now;
  if (paused_) return;
  for (Sequence& sequence : running_) {
    sequence.done = std::min(sequence.done + tokens, static_cast<double>(sequence.length));
    Stamp(sequence);
  }
}

// Generates the tokens that are due, stamped with the loaded version.
void SimulatedEngine::Stamp(Sequence& sequence) {
  Response& response = sequence.response;
  const auto begin = static_cast<int32_t>(response.response_ids.size());
  const auto end = static_cast<int32_t>(sequence.done);
  if (end <= begin) return;
  for (int32_t t = begin; t < end; ++t) {
    response.response_ids.push_back(
        static_cast<int32_t>(RandomBits(sequence.key, 3, static_cast<uint64_t>(t)) % kTokens));
    response.behavior_logprobs.push_back(options_.logprob);
    response.loss_mask.push_back(1);
  }
  tokens_ += end - begin;
  const PolicyVersion policy = versions_[static_cast<size_t>(sequence.lane)];
  if (!response.spans.empty() && response.spans.back().policy == policy) {
    response.spans.back().end = end;
  } else {
    response.spans.push_back({policy, begin, end});
  }
}

GenerationOutput SimulatedEngine::Output(Sequence sequence) const {
  return {sequence.request_id, sequence.lane, sequence.sample_index, std::move(sequence.response)};
}

absl::StatusOr<std::vector<GenerationOutput>> SimulatedEngine::Poll() {
  if (usage_.get() < 0) return Generate();
  const double before = ThreadCpuSeconds();
  auto finished = Generate();
  cpu_seconds_ += ThreadCpuSeconds() - before;
  ReportUsage();
  return finished;
}

absl::StatusOr<std::vector<GenerationOutput>> SimulatedEngine::Generate() {
  if (running_.empty()) return std::vector<GenerationOutput>();
  double left = 1e18;
  for (const Sequence& sequence : running_) {
    left = std::min(left, static_cast<double>(sequence.length) - sequence.done);
  }
  const absl::Duration next = absl::Seconds(left * SecondsPerToken());
  absl::SleepFor(std::clamp(paused_ ? options_.longest_poll : next, absl::ZeroDuration(),
                            options_.longest_poll));
  Advance(clock_.Now());
  std::vector<GenerationOutput> finished;
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = running_[i];
    if (sequence.done < static_cast<double>(sequence.length) - 1e-6) {
      ++i;
      continue;
    }
    sequence.done = static_cast<double>(sequence.length);
    Stamp(sequence);
    sequence.response.finish = FinishReason::kStop;
    finished.push_back(Output(std::move(sequence)));
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  FillSlots();
  return finished;
}

std::vector<GenerationOutput> SimulatedEngine::Cancel(int64_t request_id) {
  Advance(clock_.Now());
  std::vector<GenerationOutput> partials;
  TakeBack(request_id, running_, partials);
  TakeBack(request_id, waiting_, partials);
  FillSlots();
  return partials;
}

void SimulatedEngine::TakeBack(int64_t request_id, std::deque<Sequence>& from,
                               std::vector<GenerationOutput>& partials) {
  for (size_t i = 0; i < from.size();) {
    if (from[i].request_id != request_id) {
      ++i;
      continue;
    }
    partials.push_back(Output(std::move(from[i])));
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

absl::Status SimulatedEngine::LoadWeights(Lane lane, const WeightSnapshot& snapshot) {
  Advance(clock_.Now());
  versions_[static_cast<size_t>(lane)] = snapshot.manifest.policy;
  loaded_[static_cast<size_t>(lane)] = true;
  if (lane == Lane::kRollout) {
    ++swaps_;
    if (on_load_) on_load_(snapshot.manifest);
  }
  return absl::OkStatus();
}

EngineStats SimulatedEngine::stats() const {
  EngineStats stats;
  stats.running_sequences = static_cast<int64_t>(running_.size());
  stats.capacity_sequences = options_.slots;
  stats.tokens_generated = tokens_;
  stats.weight_swaps = swaps_;
  return stats;
}

}  // namespace freshet
