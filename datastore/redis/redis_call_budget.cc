#include "datastore/redis/redis_call_budget.h"

#include <map>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {

absl::StatusOr<bool> RedisCallBudget::Spend(const std::string& component, int64_t limit) {
  FRESHET_RETURN_IF_ERROR(CheckSpend(component, limit));
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kSpendCall, {component, StrCat(limit)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  return answer.values[0].integer == 1;
}

absl::StatusOr<std::vector<ComponentCalls>> ParseCalls(const RedisReply& spent,
                                                       const RedisReply& refused) {
  std::map<std::string, ComponentCalls> by_name;
  for (const auto& [hash, number] : {std::pair{&spent, &ComponentCalls::spent},
                                     std::pair{&refused, &ComponentCalls::refused_at}}) {
    for (size_t i = 0; i + 1 < hash->items.size(); i += 2) {
      ComponentCalls& calls = by_name[hash->items[i].text];
      calls.component = hash->items[i].text;
      FRESHET_ASSIGN_OR_RETURN(calls.*number, ParseNumber(hash->items[i + 1].text));
    }
  }
  std::vector<ComponentCalls> all;
  all.reserve(by_name.size());
  for (const auto& [name, calls] : by_name) all.push_back(calls);
  return all;
}

}  // namespace freshet
