#include "rollout/generation/generation_queue.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/engine/engine_call.h"

namespace freshet {

struct GenerationQueue::Entry {
  int64_t id = 0;
  int64_t prompt_tokens = 0;
  absl::Time deadline;
  QueuedRequest request;
  // Of the engine's thread.
  bool running = false;
  size_t samples_left = 0;
};

struct GenerationQueue::Ending {
  std::shared_ptr<Entry> entry;
  absl::Status status;
};

GenerationQueue::GenerationQueue(InferenceEngine& engine, const GenerationQueueOptions& options,
                                 const Clock& clock)
    : engine_(engine),
      options_(options),
      clock_(clock),
      next_id_(kFirstQueuedRequest),
      first_waiting_(kFirstQueuedRequest) {
  TakeStats();
}

GenerationQueue::~GenerationQueue() = default;

absl::StatusOr<int64_t> GenerationQueue::Submit(QueuedRequest request) {
  std::vector<QueuedRequest> requests;
  requests.push_back(std::move(request));
  FRESHET_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, SubmitAll(std::move(requests)));
  return ids.front();
}

std::shared_ptr<GenerationQueue::Entry> GenerationQueue::MakeEntry(QueuedRequest request) const {
  auto entry = std::make_shared<Entry>();
  entry->prompt_tokens = static_cast<int64_t>(request.generation.prompt_ids.size());
  for (const Response& partial : request.generation.partials) {
    entry->prompt_tokens += static_cast<int64_t>(partial.response_ids.size());
  }
  entry->samples_left = request.generation.sample_indices.size();
  entry->deadline = clock_.Now() + options_.request_timeout;
  entry->request = std::move(request);
  return entry;
}

absl::Status GenerationQueue::Refusal() const {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (!closed_.empty()) return absl::UnavailableError(closed_);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> GenerationQueue::SubmitAll(
    std::vector<QueuedRequest> requests) {
  std::vector<std::shared_ptr<Entry>> entries;
  int64_t tokens = 0;
  for (QueuedRequest& request : requests) {
    entries.push_back(MakeEntry(std::move(request)));
    tokens += entries.back()->prompt_tokens;
  }
  const auto count = static_cast<int64_t>(entries.size());
  if (count > options_.max_waiting) {
    return InvalidArgument(count, " prompts in one call, want at most ", options_.max_waiting,
                           ", which is how many may wait");
  }
  const MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(Refusal());
  if (stats_.waiting + count > options_.max_waiting ||
      (stats_.waiting > 0 && stats_.waiting_tokens + tokens > options_.max_waiting_tokens)) {
    stats_.refused += count;
    return ResourceExhausted("too many requests wait: ", stats_.waiting, " with ",
                             stats_.waiting_tokens, " prompt tokens; retry later");
  }
  stats_.waiting += count;
  stats_.waiting_tokens += tokens;
  std::vector<int64_t> ids;
  for (const std::shared_ptr<Entry>& entry : entries) {
    entry->id = next_id_++;
    entries_[entry->id] = entry;
    ids.push_back(entry->id);
  }
  cv_.NotifyAll();
  return ids;
}

void GenerationQueue::Cancel(int64_t id) {
  const MutexLock lock(mu_);
  if (!entries_.contains(id)) return;
  // At most one per entry.
  if (std::find(cancelled_.begin(), cancelled_.end(), id) != cancelled_.end()) return;
  cancelled_.push_back(id);
  cv_.NotifyAll();
}

void GenerationQueue::StartDrain(absl::Time finish_by) {
  const MutexLock lock(mu_);
  draining_ = true;
  finish_by_ = finish_by;
}

bool GenerationQueue::InDrainGrace() const {
  const absl::Time now = clock_.Now();
  const MutexLock lock(mu_);
  return draining_ && !entries_.empty() && now < finish_by_;
}

bool GenerationQueue::Drain(absl::Duration grace) {
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

bool GenerationQueue::draining() const {
  const MutexLock lock(mu_);
  return draining_;
}

QueueStats GenerationQueue::stats() const {
  const MutexLock lock(mu_);
  return stats_;
}

void GenerationQueue::Open() {
  const MutexLock lock(mu_);
  closed_.clear();
}

void GenerationQueue::Close(const std::string& reason) {
  std::vector<Ending> endings;
  {
    const MutexLock lock(mu_);
    closed_ = reason;
    while (!entries_.empty()) {
      endings.push_back({entries_.begin()->second, absl::UnavailableError(reason)});
      Erase(entries_.begin()->first);
    }
    cancelled_.clear();
  }
  EndAll(std::move(endings));
}

void GenerationQueue::Await(absl::Duration timeout) {
  const MutexLock lock(mu_);
  if (!woken_ && cancelled_.empty() && first_waiting_ >= next_id_) cv_.WaitFor(mu_, timeout);
  woken_ = false;
}

void GenerationQueue::Wake() {
  const MutexLock lock(mu_);
  woken_ = true;
  cv_.NotifyAll();
}

std::vector<GenerationQueue::Ending> GenerationQueue::TakeEnded() {
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
  while (!entries_.empty() && entries_.begin()->second->deadline <= now) {
    const std::shared_ptr<Entry> entry = entries_.begin()->second;
    endings.push_back(
        {entry, absl::DeadlineExceededError(StrCat(
                    "not finished within ", absl::FormatDuration(options_.request_timeout)))});
    Erase(entry->id);
  }
  return endings;
}

void GenerationQueue::EndAll(std::vector<Ending> endings) {
  if (endings.empty()) return;
  for (const Ending& ending : endings) {
    if (ending.entry->running) engine_.Cancel(ending.entry->id);
  }
  TakeStats();
  for (Ending& ending : endings) ending.entry->request.on_end(ending.status);
  const MutexLock lock(mu_);
  ending_ -= endings.size();
  cv_.NotifyAll();  // for Drain
}

std::shared_ptr<GenerationQueue::Entry> GenerationQueue::FirstWaiting() {
  const MutexLock lock(mu_);
  const auto found = entries_.lower_bound(first_waiting_);
  first_waiting_ = found == entries_.end() ? next_id_ : found->first;
  return found == entries_.end() ? nullptr : found->second;
}

void GenerationQueue::BeforePoll() {
  TakeStats();  // the engine's limits, before its first request
  EndAll(TakeEnded());
  while (const std::shared_ptr<Entry> entry = FirstWaiting()) {
    GenerationRequest& generation = entry->request.generation;
    const auto samples = static_cast<int64_t>(generation.sample_indices.size());
    const auto prompt_tokens = static_cast<int64_t>(generation.prompt_ids.size());
    if (!engine_.Idle() &&
        engine_.Admissible(prompt_tokens, samples, generation.sampling, 1) == 0) {
      return;
    }
    generation.id = entry->id;
    generation.on_token = entry->request.on_token;
    absl::Status status = CallEngine([&] { return engine_.Submit(std::move(generation)); });
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

void GenerationQueue::Finish(const std::shared_ptr<Entry>& entry, absl::Status status) {
  {
    const MutexLock lock(mu_);
    if (!entries_.contains(entry->id)) return;
    Erase(entry->id);
  }
  std::vector<Ending> endings;
  endings.push_back({entry, std::move(status)});
  EndAll(std::move(endings));
}

void GenerationQueue::AfterPoll(std::vector<GenerationOutput>& outputs) {
  TakeStats();
  std::vector<Ending> ended;
  std::erase_if(outputs, [&](const GenerationOutput& output) {
    if (output.request_id < kFirstQueuedRequest) return false;
    const MutexLock lock(mu_);
    const auto found = entries_.find(output.request_id);
    if (found == entries_.end()) return true;
    if (!output.error.ok() || --found->second->samples_left == 0) {
      found->second->running = false;  // nothing to cancel
      ended.push_back({found->second, output.error});
    }
    return true;
  });
  for (Ending& ending : ended) Finish(ending.entry, std::move(ending.status));
}

void GenerationQueue::EngineFailed(const absl::Status& status) {
  TakeStats();
  std::vector<Ending> endings;
  {
    const MutexLock lock(mu_);
    for (const auto& [id, entry] : entries_) {
      if (entry->running) endings.push_back({entry, status});
    }
    for (const Ending& ending : endings) Erase(ending.entry->id);
  }
  EndAll(std::move(endings));
}

void GenerationQueue::Erase(int64_t id) {
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

void GenerationQueue::TakeStats() {
  const EngineStats engine = engine_.stats();
  const MutexLock lock(mu_);
  stats_.engine = engine;
}

}  // namespace freshet
