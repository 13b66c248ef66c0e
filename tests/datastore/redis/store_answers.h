#ifndef FRESHET_TESTS_DATASTORE_REDIS_STORE_ANSWERS_H_
#define FRESHET_TESTS_DATASTORE_REDIS_STORE_ANSWERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/str_cat.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Everything that an answer of a TrajectoryStore says, as text: two stores gave the same answer iff
// the texts are equal.
std::string Text(const absl::Status& status);
std::string Text(const std::vector<absl::Status>& statuses);
std::string Text(int64_t value);
std::string Text(const std::vector<int64_t>& values);
std::string Text(const PutPromptsReply& reply);
std::string Text(const LeaseReply& reply);
std::string Text(const std::vector<RowLease>& rows);
std::string Text(const OpenEpochReply& reply);
std::string Text(const NextBatchReply& reply);
std::string Text(const CommitReceipt& receipt);
std::string Text(const StoreStats& stats);
std::string Text(const Explanation& explanation);
std::string Text(const PromptCursor& cursor);
std::string Text(const std::vector<LedgerRow>& rows);
std::string Text(const std::vector<DeadLetter>& letters);
std::string Text(const Response& response);

template <typename T>
std::string Text(const absl::StatusOr<T>& answer) {
  return answer.ok() ? Text(*answer) : Text(answer.status());
}

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_REDIS_STORE_ANSWERS_H_
