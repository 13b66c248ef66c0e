#ifndef FRESHET_DATASTORE_REDIS_REDIS_EVALUATION_STORE_H_
#define FRESHET_DATASTORE_REDIS_REDIS_EVALUATION_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "datastore/evaluation_store.h"
#include "datastore/redis/redis_change_feed.h"
#include "datastore/redis/redis_script_runner.h"

namespace freshet {

// Evaluations of a job on Redis. Keys: {JOB}:e:*, described in scripts/evaluation.lua. One object
// per process; any process may die at any time. Thread-safe.
class RedisEvaluationStore final : public EvaluationStore {
 public:
  // `runner` and `feed` must outlive the store.
  RedisEvaluationStore(RedisScriptRunner& runner, RedisChangeFeed& feed)
      : runner_(runner), feed_(feed) {}

  absl::Duration lease_ttl() const override { return runner_.config().options.lease_ttl; }
  absl::Status Begin(const std::string& id, int64_t rows) override;
  absl::Status PutAnswers(const std::string& id, const PolicyVersion& policy,
                          const std::vector<EvaluationAnswer>& answers) override;
  absl::Status Abandon(const std::string& id, const std::string& reason) override;
  absl::StatusOr<EvaluationState> Read(const std::string& id) override;
  absl::Status End(const std::string& id) override;

  // A lease returns at most 1,024 rows and about 4 MiB. Rows with corrupt bytes fail.
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override;
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                    const std::vector<RowPut>& rows) override;
  absl::Status EndRow(Task task, int64_t token, RowEnd end, const std::string& reason) override;
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override;
  uint64_t ChangeCount(Topic) override { return feed_.Count(Topic::kEvaluation); }
  uint64_t AwaitChange(Topic, uint64_t seen, absl::Duration timeout) override {
    return feed_.Await(Topic::kEvaluation, seen, timeout);
  }
  // Closes the feed, which the trajectory store shares.
  void Close() override { feed_.Close(); }

 private:
  absl::StatusOr<ScriptAnswer> Run(const std::string& id, const RedisScript& script,
                                   std::vector<std::string> args);
  // Reads the state, and adds up to `count` ended rows from `first` on to it.
  absl::Status ReadSlice(const std::string& id, int64_t first, int64_t count,
                         EvaluationState& state, int64_t& total);

  RedisScriptRunner& runner_;
  RedisChangeFeed& feed_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_EVALUATION_STORE_H_
