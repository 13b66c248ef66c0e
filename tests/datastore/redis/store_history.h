#ifndef FRESHET_TESTS_DATASTORE_REDIS_STORE_HISTORY_H_
#define FRESHET_TESTS_DATASTORE_REDIS_STORE_HISTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "datastore/trajectory_store.h"
#include "tests/datastore/redis/store_answers.h"
#include "tests/testing/fake_clock.h"

namespace freshet {

// What a random history did, over all of them: a test asks for some of each.
struct HistoryCounts {
  std::map<std::string, int64_t> calls;    // by operation
  std::map<std::string, int64_t> answers;  // by operation and status code
  std::map<std::string, int64_t> ends;     // groups by reason, at the histories' ends
  int64_t trained = 0;                     // groups
  int64_t replayed = 0;                    // samples
  int64_t skipped = 0;                     // samples
};

// Options and origin of the history of a seed: every disposition, small bounds that are often hit.
StoreOptions HistoryOptions(uint64_t seed, Disposition disposition);
StoreOrigin HistoryOrigin(uint64_t seed);

// One random history of calls, valid and not, the same on two stores that share a clock. The same
// seed gives the same calls as long as the answers are the same.
class StoreHistory {
 public:
  // Every third history is a calm one: fewer faults, so that it trains many steps.
  StoreHistory(uint64_t seed, TrajectoryStore& one, TrajectoryStore& other, FakeClock& clock,
               StoreOrigin origin, HistoryCounts& counts);

  // Makes `steps` choices of one or a few calls, twice as many in a calm history. Returns the first
  // one whose answers differ, with both answers; "" when none did.
  std::string Run(int steps);

 private:
  struct Work {  // a group lease that somebody holds, or held
    GroupLease lease;
    std::string worker;
    PolicyVersion engine;
  };

  int64_t Below(int64_t n);
  bool Chance(double p);
  int64_t Version();  // committed
  std::string Worker(const char* kind);
  Response RandomResponse(const PolicyVersion& from, const Response& begin);
  void Spoil(Response& response);

  // Calls both and compares. Returns the first one's answer.
  template <typename Call>
  auto Both(const std::string& what, Call call) -> decltype(call(std::declval<TrajectoryStore&>()));

  void Step();
  void PutPrompts();
  void Lease();
  SamplePut RandomPut();
  void PutSample();
  void PutSamples();   // of several leases, some twice
  void FinishLease();  // all of its samples
  void ReturnLease();
  void FailLease();
  void HandBackLease();
  void GiveUpLease(bool failed);
  void Renew();
  void LeaseRows();
  std::shared_ptr<const Score> RandomScore();
  int64_t RandomRow();  // lease token
  void PutFields();
  void PutFieldsOf(int64_t token);
  void PutRows();    // of several groups, some twice
  void ServeRows();  // some rows at once
  void EndRow();
  void OpenEpoch();
  void OpenEpochAt(PolicyVersion loaded);
  void NextBatch();
  void Commit();
  void MarkDurable();
  void Revoke();
  void PassTime();
  void TrimLedger();
  void CountGeneration();
  void Compare();  // reports, ledger, cursor

  uint64_t state_;
  const bool calm_;  // few faults: many steps are trained
  TrajectoryStore& one_;
  TrajectoryStore& other_;
  FakeClock& clock_;
  const StoreOrigin origin_;
  HistoryCounts& counts_;
  std::string difference_;
  const bool repeat_prompts_;
  int64_t next_ordinal_ = 0;
  int64_t version_ = 0;
  int64_t lineage_ = 0;  // current
  int64_t epoch_ = 0;
  int64_t requests_ = 0;
  absl::Time last_request_at_;
  LeaseRequest last_request_;
  EpochRequest last_epoch_request_;
  RowRequest last_rows_;  // the last request for rows
  std::vector<Work> work_;
  std::vector<int64_t> rows_;  // lease tokens
  std::vector<int64_t> batch_;
  int64_t batch_step_ = 0;
  std::map<int64_t, std::vector<int64_t>> committed_;  // ordinals by step
  int64_t redo_next_ = 0;
  int64_t ledger_seq_ = 0;
  std::map<std::string, int64_t> worker_epochs_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_REDIS_STORE_HISTORY_H_
