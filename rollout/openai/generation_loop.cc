#include "rollout/openai/generation_loop.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet::openai {
namespace {

constexpr absl::Duration kLongestWait = absl::Seconds(1);  // when nothing can happen before

}  // namespace

struct GenerationLoop::Entry {
  int64_t id = 0;
  int64_t prompt_tokens = 0;
  absl::Time deadline;
  LoopRequest request;
  // Of the loop's thread.
  bool running = false;
  size_t samples_left = 0;
};

struct GenerationLoop::Ending {
  std::shared_ptr<Entry> entry;
  absl::Status status;
};

GenerationLoop::GenerationLoop(std::unique_ptr<InferenceEngine> engine,
                               const GenerationLoopOptions& options, const Clock& clock)
    : engine_(std::move(engine)), options_(options), clock_(clock) {
  TakeStats();
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

GenerationLoop::~GenerationLoop() {
  {
    const MutexLock lock(mu_);
    draining_ = true;
    thread_.request_stop();
    cv_.NotifyAll();
  }
  thread_.join();
}

absl::StatusOr<int64_t> GenerationLoop::Submit(LoopRequest request) {
  auto entry = std::make_shared<Entry>();
  entry->prompt_tokens = static_cast<int64_t>(request.generation.prompt_ids.size());
  entry->samples_left = request.generation.sample_indices.size();
  entry->deadline = clock_.Now() + options_.request_timeout;
  entry->request = std::move(request);
  const MutexLock lock(mu_);
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (stats_.waiting >= options_.max_waiting ||
      (stats_.waiting > 0 &&
       stats_.waiting_tokens + entry->prompt_tokens > options_.max_waiting_tokens)) {
    ++stats_.refused;
    return ResourceExhausted("too many requests wait: ", stats_.waiting, " with ",
                             stats_.waiting_tokens, " prompt tokens; retry later");
  }
  entry->id = next_id_++;
  ++stats_.waiting;
  stats_.waiting_tokens += entry->prompt_tokens;
  entries_[entry->id] = entry;
  cv_.NotifyAll();
  return entry->id;
}

void GenerationLoop::Cancel(int64_t id) {
  const MutexLock lock(mu_);
  if (!entries_.contains(id)) return;
  // At most one per entry.
  if (std::find(cancelled_.begin(), cancelled_.end(), id) != cancelled_.end()) return;
  cancelled_.push_back(id);
  cv_.NotifyAll();
}

void GenerationLoop::StartDrain() {
  const MutexLock lock(mu_);
  draining_ = true;
}

bool GenerationLoop::Drain(absl::Duration grace) {
  const absl::Time deadline = absl::Now() + grace;
  const MutexLock lock(mu_);
  draining_ = true;
  while (!entries_.empty() || ending_ > 0) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    cv_.WaitFor(mu_, left);
  }
  return true;
}

bool GenerationLoop::draining() const {
  const MutexLock lock(mu_);
  return draining_;
}

LoopStats GenerationLoop::stats() const {
  const MutexLock lock(mu_);
  return stats_;
}

void GenerationLoop::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    EndAll(TakeEnded(/*stopping=*/false));
    Admit();
    if (!engine_->Idle()) {
      RunEngine();
      continue;
    }
    const MutexLock lock(mu_);
    if (stop.stop_requested() || !cancelled_.empty() || first_waiting_ < next_id_) continue;
    cv_.WaitFor(mu_, kLongestWait);
  }
  EndAll(TakeEnded(/*stopping=*/true));
}

std::vector<GenerationLoop::Ending> GenerationLoop::TakeEnded(bool stopping) {
  std::vector<Ending> endings;
  const absl::Time now = clock_.Now();
  const MutexLock lock(mu_);
  for (const int64_t id : cancelled_) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) continue;
    endings.push_back({found->second, absl::CancelledError("the caller is gone")});
    Erase(id);
  }
  cancelled_.clear();
  // All have the same timeout, so the first one is due first.
  while (!entries_.empty()) {
    const std::shared_ptr<Entry> entry = entries_.begin()->second;
    if (stopping) {
      endings.push_back({entry, absl::UnavailableError("the server stops")});
    } else if (entry->deadline <= now) {
      endings.push_back(
          {entry, absl::DeadlineExceededError(StrCat(
                      "not finished within ", absl::FormatDuration(options_.request_timeout)))});
    } else {
      break;
    }
    Erase(entry->id);
  }
  return endings;
}

void GenerationLoop::EndAll(std::vector<Ending> endings) {
  if (endings.empty()) return;
  for (const Ending& ending : endings) {
    if (ending.entry->running) engine_->Cancel(ending.entry->id);
  }
  TakeStats();
  for (Ending& ending : endings) ending.entry->request.on_end(ending.status);
  const MutexLock lock(mu_);
  ending_ -= endings.size();
  cv_.NotifyAll();  // for Drain
}

std::shared_ptr<GenerationLoop::Entry> GenerationLoop::FirstWaiting() {
  const MutexLock lock(mu_);
  const auto found = entries_.lower_bound(first_waiting_);
  first_waiting_ = found == entries_.end() ? next_id_ : found->first;
  return found == entries_.end() ? nullptr : found->second;
}

void GenerationLoop::Admit() {
  while (const std::shared_ptr<Entry> entry = FirstWaiting()) {
    GenerationRequest& generation = entry->request.generation;
    const auto samples = static_cast<int64_t>(generation.sample_indices.size());
    if (!engine_->Idle() &&
        engine_->Admissible(entry->prompt_tokens, samples, generation.sampling, 1) == 0) {
      return;
    }
    generation.id = entry->id;
    generation.lane = Lane::kRollout;
    generation.on_token = entry->request.on_token;
    absl::Status status = engine_->Submit(std::move(generation));
    if (status.code() == absl::StatusCode::kFailedPrecondition) {
      status = absl::UnavailableError(status.message());
    }
    if (!status.ok()) {
      Finish(entry, std::move(status));
      continue;
    }
    entry->running = true;
    const MutexLock lock(mu_);
    --stats_.waiting;
    stats_.waiting_tokens -= entry->prompt_tokens;
    ++stats_.running;
    first_waiting_ = entry->id + 1;
  }
}

void GenerationLoop::Finish(const std::shared_ptr<Entry>& entry, absl::Status status) {
  {
    const MutexLock lock(mu_);
    if (!entries_.contains(entry->id)) return;
    Erase(entry->id);
  }
  std::vector<Ending> endings;
  endings.push_back({entry, std::move(status)});
  EndAll(std::move(endings));
}

void GenerationLoop::RunEngine() {
  absl::StatusOr<std::vector<GenerationOutput>> outputs = engine_->Poll();
  TakeStats();
  if (outputs.ok()) {
    for (const GenerationOutput& output : *outputs) {
      std::shared_ptr<Entry> entry;
      {
        const MutexLock lock(mu_);
        const auto found = entries_.find(output.request_id);
        if (found != entries_.end() && --found->second->samples_left == 0) entry = found->second;
        if (entry != nullptr) entry->running = false;  // nothing to cancel
      }
      if (entry != nullptr) Finish(entry, absl::OkStatus());
    }
    return;
  }
  std::vector<Ending> endings;
  {
    const MutexLock lock(mu_);
    for (const auto& [id, entry] : entries_) {
      if (entry->running) endings.push_back({entry, outputs.status()});
    }
    for (const Ending& ending : endings) Erase(ending.entry->id);
  }
  EndAll(std::move(endings));
}

void GenerationLoop::Erase(int64_t id) {
  const std::shared_ptr<Entry>& entry = entries_.at(id);
  // A request runs from the moment that it does not wait.
  if (id >= first_waiting_) {
    --stats_.waiting;
    stats_.waiting_tokens -= entry->prompt_tokens;
  } else {
    --stats_.running;
  }
  entries_.erase(id);
  ++ending_;
}

void GenerationLoop::TakeStats() {
  const EngineStats engine = engine_->stats();
  const MutexLock lock(mu_);
  stats_.engine = engine;
}

}  // namespace freshet::openai
