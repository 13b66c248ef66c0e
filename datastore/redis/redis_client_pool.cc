#include "datastore/redis/redis_client_pool.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisDialer::Dial(absl::Time deadline) {
  const SystemClock& clock = SystemClock::Get();
  {
    MutexLock lock(mu_);
    while (clock.Now() < next_try_) {
      const absl::Time now = clock.Now();
      if (now >= deadline) {
        return StatusOf(absl::StatusCode::kUnavailable, last_error_, "; the next try comes in ",
                        absl::FormatDuration(next_try_ - now));
      }
      changed_.WaitFor(mu_, std::min(next_try_, deadline) - now);
    }
  }
  auto connection =
      RedisConnection::Open(options_, std::min(deadline, clock.Now() + options_.connect_timeout));
  if (!connection.ok()) {
    MutexLock lock(mu_);
    last_error_ = Message(connection.status());
    LengthenBackoff();
  }
  return connection;
}

void RedisDialer::LengthenBackoff() {
  const absl::Time now = SystemClock::Get().Now();
  if (now < next_try_) return;  // another thread's failure of the same moment
  next_try_ = now + BackoffDelay(++failures_, options_.reconnect_backoff_min,
                                 options_.reconnect_backoff_max);
  backing_off_.store(true, std::memory_order_relaxed);
}

void RedisDialer::NoteFit() {
  if (!backing_off_.load(std::memory_order_relaxed)) return;
  MutexLock lock(mu_);
  backing_off_.store(false, std::memory_order_relaxed);
  failures_ = 0;
  next_try_ = absl::InfinitePast();
  changed_.NotifyAll();
}

void RedisDialer::NoteUnfit() {
  MutexLock lock(mu_);
  last_error_ = StrCat("redis at ", options_.host, ":", options_.port, " cannot serve now");
  LengthenBackoff();
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnectionPool::Borrow(absl::Time deadline) {
  FRESHET_RETURN_IF_ERROR(TakeSlot(deadline));
  while (std::unique_ptr<RedisConnection> connection = TakeIdle()) {
    if (connection->IsIdle()) return connection;
  }
  auto connection = dialer_.Dial(deadline);
  if (!connection.ok()) FreeSlot();
  return connection;
}

absl::Status RedisConnectionPool::TakeSlot(absl::Time deadline) {
  MutexLock lock(mu_);
  while (free_slots_ == 0) {
    const absl::Duration left = deadline - SystemClock::Get().Now();
    if (left <= absl::ZeroDuration()) {
      return StatusOf(absl::StatusCode::kUnavailable, "redis at ", dialer_.options().host, ":",
                      dialer_.options().port, ": no free connection in time");
    }
    freed_.WaitFor(mu_, left);
  }
  --free_slots_;
  return absl::OkStatus();
}

std::unique_ptr<RedisConnection> RedisConnectionPool::TakeIdle() {
  MutexLock lock(mu_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<RedisConnection> connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

void RedisConnectionPool::GiveBack(std::unique_ptr<RedisConnection> connection) {
  MutexLock lock(mu_);
  idle_.push_back(std::move(connection));
  ++free_slots_;
  freed_.NotifyAll();
}

void RedisConnectionPool::Drop(std::unique_ptr<RedisConnection> connection) {
  connection.reset();
  FreeSlot();
}

void RedisConnectionPool::DropIdle() {
  std::vector<std::unique_ptr<RedisConnection>> dropped;
  MutexLock lock(mu_);
  dropped.swap(idle_);
}

void RedisConnectionPool::FreeSlot() {
  MutexLock lock(mu_);
  ++free_slots_;
  freed_.NotifyAll();
}

}  // namespace freshet
