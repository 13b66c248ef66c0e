#ifndef FRESHET_TRAINER_SERVICE_FETCHED_ROWS_H_
#define FRESHET_TRAINER_SERVICE_FETCHED_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/worker_role.h"
#include "trainer/learner/sft_warmup.h"

namespace freshet {

// A job's training rows, fetched from the controller in pieces and kept. Errors: those of
// FetchRows; INTERNAL if the controller lacks a row. Not thread-safe.
class FetchedRows final : public WarmupRows {
 public:
  // `controller` must outlive this object.
  FetchedRows(runtime::ControllerCalls& controller, std::string job);

  // Fetches the first piece. Call it before anything else.
  absl::Status Open() { return Fetch(0); }
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  absl::StatusOr<WarmupRow> Get(int64_t index) override;

 private:
  absl::Status Fetch(int64_t index);

  runtime::ControllerCalls& controller_;
  const std::string job_;
  std::vector<std::optional<WarmupRow>> rows_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_FETCHED_ROWS_H_
