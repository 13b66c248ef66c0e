#include "trainer/service/fetched_rows.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kRowsPerCall = 512;

}  // namespace

FetchedRows::FetchedRows(runtime::ControllerCalls& controller, std::string job)
    : controller_(controller), job_(std::move(job)) {}

absl::StatusOr<WarmupRow> FetchedRows::Get(int64_t index) {
  std::optional<WarmupRow>& row = rows_[static_cast<size_t>(index)];
  if (!row.has_value()) FRESHET_RETURN_IF_ERROR(Fetch(index));
  return *row;
}

absl::Status FetchedRows::Fetch(int64_t index) {
  cluster::v1::FetchRowsRequest request;
  request.set_job_id(job_);
  request.set_first(index / kRowsPerCall * kRowsPerCall);
  request.set_count(kRowsPerCall);
  FRESHET_ASSIGN_OR_RETURN(const cluster::v1::FetchRowsReply reply, controller_.FetchRows(request));
  if (reply.total() < 1) return Internal("the controller has no training rows of job ", job_);
  rows_.resize(static_cast<size_t>(reply.total()));
  auto place = static_cast<size_t>(request.first());
  for (const trajectory::v1::DatasetRow& row : reply.rows()) {
    if (place >= rows_.size()) break;
    rows_[place++] =
        WarmupRow{row.prompt(), {row.attributes().begin(), row.attributes().end()}, row.where()};
  }
  if (index >= size() || !rows_[static_cast<size_t>(index)].has_value()) {
    return Internal("the controller did not send row ", index, " of job ", job_);
  }
  return absl::OkStatus();
}

}  // namespace freshet
