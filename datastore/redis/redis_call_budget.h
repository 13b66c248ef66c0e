#ifndef FRESHET_DATASTORE_REDIS_REDIS_CALL_BUDGET_H_
#define FRESHET_DATASTORE_REDIS_REDIS_CALL_BUDGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "datastore/call_budget.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_script_runner.h"

namespace freshet {

// Counts in hashes of the job's store, so the counts are kept until the job is deleted. A Spend is
// one round trip. Errors besides those of CallBudget: those of RedisScriptRunner. Thread-safe.
class RedisCallBudget final : public CallBudget {
 public:
  // `runner` must outlive this object.
  explicit RedisCallBudget(RedisScriptRunner& runner) : runner_(runner) {}
  absl::StatusOr<bool> Spend(const std::string& component, int64_t limit) override;

 private:
  RedisScriptRunner& runner_;
};

// Counts from the hashes of stats.lua, by name of the component. DATA_LOSS: malformed.
absl::StatusOr<std::vector<ComponentCalls>> ParseCalls(const RedisReply& spent,
                                                       const RedisReply& refused);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CALL_BUDGET_H_
