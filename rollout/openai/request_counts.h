#ifndef FRESHET_ROLLOUT_OPENAI_REQUEST_COUNTS_H_
#define FRESHET_ROLLOUT_OPENAI_REQUEST_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace freshet::openai {

// How a request for a completion ended.
enum class Outcome : size_t { kOk, kInvalid, kDenied, kFull, kUnavailable, kLate, kGone, kFailed };
constexpr std::array<const char*, 8> kOutcomeNames = {
    "ok", "invalid", "denied", "full", "unavailable", "late", "client_gone", "failed"};

Outcome OutcomeOf(const absl::Status& status);

// Requests by outcome. Thread-safe.
class RequestCounts {
 public:
  void Count(const absl::Status& status) { ++counts_[static_cast<size_t>(OutcomeOf(status))]; }
  int64_t of(size_t outcome) const { return counts_[outcome]; }

 private:
  std::array<std::atomic<int64_t>, kOutcomeNames.size()> counts_{};
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_REQUEST_COUNTS_H_
