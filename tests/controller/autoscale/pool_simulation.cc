#include "tests/controller/autoscale/pool_simulation.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "base/str_cat.h"
#include "controller/jobs/plan/buffer_ages.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "tests/datastore/staleness_simulation.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/simulated_response.h"

namespace freshet {
namespace {

constexpr int64_t kCheckpointEvery = 5;
constexpr int64_t kPromptsPerFeed = 32;  // every 0.5 s
constexpr double kActEvery = 15;
constexpr double kAskEvery = 0.5;
constexpr double kLostAfter = 2;
constexpr int64_t kManySteps = 1'000'000;

class Simulation {
 public:
  explicit Simulation(const PoolSimulationOptions& options)
      : options_(options),
        dice_(options.seed * 7919 + 3),
        autoscaler_(PoolOptions{{{"default", options.bounds}}, ScalingRules(), absl::Seconds(1)}) {
    StoreOptions store;
    store.job = "sim";
    store.staleness = {options.eta, Disposition::kWait, options.groups_per_step,
                       (options.eta + 1) * options.groups_per_step};
    store.group_size = options.group_size;
    store.last_step = kManySteps;
    store.capacity_groups = (options.eta + 1 + 2 * kCheckpointEvery) * options.groups_per_step;
    store.max_queued_prompts = 512;
    store.lease_ttl = absl::Hours(10);
    store_ = std::move(InMemoryTrajectoryStore::Create(store, {}, clock_)).value();
  }

  PoolSimulationResult Run() {
    epoch_ = Take(store_->OpenEpoch("t0", {0, 0}), "OpenEpoch").epoch;
    desired_ = options_.engines;
    for (int32_t i = 0; i < options_.engines; ++i) StartEngine(0);
    Feed();
    Score();
    Train();
    queue_.After(1, [this] { Look(); });
    queue_.After(kActEvery / 2, [this] { Act(); });
    if (options_.dies_every > 0) queue_.After(options_.dies_every, [this] { KillOne(); });
    if (options_.trainer_dies_at > 0) {
      queue_.After(options_.trainer_dies_at, [this] { TrainerDies(); });
    }
    while (queue_.now() < options_.seconds && queue_.Step()) {
      clock_.Advance(absl::Seconds(queue_.now()) - (clock_.Now() - start_));
    }
    result_.steps = version_;
    const double late = options_.seconds / 4;
    result_.late_wait = late_waited_ / late;
    result_.late_busy = late_ready_ > 0 ? late_busy_ / late_ready_ : 0;
    SimulationOptions told;
    told.eta = options_.eta;
    told.groups_per_step = options_.groups_per_step;
    told.group_size = options_.group_size;
    told.steps = version_;
    const auto ledger = store_->ReadLedger(0, 10'000'000);
    if (!ledger.ok()) result_.violations.push_back(Message(ledger.status()));
    for (std::string& violation : LedgerViolations(told, *ledger)) {
      result_.violations.push_back(std::move(violation));
    }
    return std::move(result_);
  }

 private:
  struct Engine {
    std::string name;
    bool ready = false;
    int64_t version = 0;
    std::map<int64_t, std::set<int32_t>> leases;  // by token: samples being generated
    double worked = 0;                            // seconds, up to `since`
    double since = 0;
    double busy_before = 0;  // `worked` at the last Look()
  };
  using EnginePtr = std::shared_ptr<Engine>;

  template <typename T>
  T Take(absl::StatusOr<T> value, const char* what) {
    if (value.ok()) return *std::move(value);
    result_.violations.push_back(StrCat(what, ": ", Message(value.status())));
    return T();
  }
  bool Alive(const EnginePtr& engine) const {
    return std::find(engines_.begin(), engines_.end(), engine) != engines_.end();
  }
  bool Late() const { return queue_.now() >= options_.seconds * 3 / 4; }

  void StartEngine(double seconds) {
    auto engine = std::make_shared<Engine>();
    engine->name = StrCat("r", next_engine_++);
    engines_.push_back(engine);
    queue_.After(seconds, [this, engine] {
      if (!Alive(engine)) return;
      engine->ready = true;
      engine->version = version_;
      engine->since = queue_.now();
      Ask(engine);
    });
  }
  void Account(Engine& engine) {
    if (!engine.leases.empty()) engine.worked += queue_.now() - engine.since;
    engine.since = queue_.now();
  }
  void Ask(const EnginePtr& engine) {
    if (!Alive(engine)) return;
    const int64_t room = options_.slots - static_cast<int64_t>(engine->leases.size());
    if (room > 0) {
      const LeaseReply reply =
          Take(store_->LeasePrompts({engine->name, StrCat(request_++), {0, engine->version}, room}),
               "LeasePrompts");
      Account(*engine);
      for (const GroupLease& lease : reply.leases) Generate(engine, lease);
    }
    queue_.After(kAskEvery, [this, engine] { Ask(engine); });
  }
  void Generate(const EnginePtr& engine, const GroupLease& lease) {
    std::set<int32_t>& missing = engine->leases[lease.token];
    for (size_t i = 0; i < lease.missing.size(); ++i) {
      const int32_t index = lease.missing[i];
      missing.insert(index);
      const int64_t begun = engine->version;
      queue_.After(options_.sample_seconds(queue_.now(), dice_),
                   [this, engine, token = lease.token, index, begun, partial = lease.partials[i]] {
                     Finish(engine, token, index, FinishAcross(partial, begun, engine->version));
                   });
    }
  }
  void Finish(const EnginePtr& engine, int64_t token, int32_t index, const Response& response) {
    const auto lease = engine->leases.find(token);
    if (!Alive(engine) || lease == engine->leases.end()) return;
    const absl::Status put = store_->PutSample(token, index, response);
    if (!put.ok()) result_.violations.push_back(StrCat("PutSample: ", Message(put)));
    lease->second.erase(index);
    if (!lease->second.empty()) return;
    Account(*engine);
    engine->leases.erase(lease);
  }
  // Returns the engine's leases and removes it.
  void Drain(const EnginePtr& engine) {
    for (const auto& [token, missing] : engine->leases) {
      const std::vector<int32_t> indices(missing.begin(), missing.end());
      const absl::Status returned =
          store_->ReturnLease(token, indices, std::vector<Response>(indices.size()));
      if (!returned.ok()) result_.violations.push_back(StrCat("ReturnLease: ", Message(returned)));
    }
    Remove(engine);
  }
  void Remove(const EnginePtr& engine) {
    engine->leases.clear();
    engines_.erase(std::find(engines_.begin(), engines_.end(), engine));
  }
  // Removes an engine without notice. After kLostAfter, the controller revokes it and a replacement
  // starts.
  void KillOne() {
    if (!engines_.empty()) {
      const EnginePtr engine =
          engines_[static_cast<size_t>(dice_.Below(static_cast<int64_t>(engines_.size())))];
      Remove(engine);
      queue_.After(kLostAfter, [this, name = engine->name] {
        Take(store_->RevokeWorker(name), "RevokeWorker");
        if (static_cast<int32_t>(engines_.size()) < desired_) StartEngine(options_.start_seconds);
      });
    }
    queue_.After(options_.dies_every, [this] { KillOne(); });
  }

  void Feed() {
    std::vector<Prompt> prompts;
    for (int64_t i = 0; i < kPromptsPerFeed; ++i) {
      Prompt& prompt = prompts.emplace_back();
      prompt.ordinal = next_ordinal_ + i;
      prompt.prompt_ids = {1};
    }
    next_ordinal_ += Take(store_->PutPrompts(prompts), "PutPrompts").accepted;
    queue_.After(0.5, [this] { Feed(); });
  }
  void Look() {
    PoolInput input;
    for (const EnginePtr& engine : engines_) {
      Account(*engine);
      const double busy = engine->worked - engine->busy_before;
      engine->busy_before = engine->worked;
      Member& member = input.workers.emplace_back();
      member.record.set_name(engine->name);
      member.record.set_role(cluster::v1::ROLE_ROLLOUT);
      member.record.set_pool("default");
      member.connected = engine->ready;
      member.status.set_busy_ratio(busy);
      if (!Late() || !engine->ready) continue;
      late_busy_ += busy;
      late_ready_ += 1;
    }
    const StoreStats stats = Take(store_->Stats(), "Stats");
    ages_.Take(stats, clock_.Now());
    JobSituation situation;
    situation.trainers = trainer_there_ ? 1 : 0;
    situation.trainer_running = trainer_there_;
    AccountTrainer();
    const double waited = waited_ - waited_before_;
    waited_before_ = waited_;
    if (Late()) late_waited_ += waited;
    situation.trainer_busy = 1 - waited;
    situation.stats = &stats;
    situation.oldest_ready = ages_.oldest(GroupState::kReady);
    JobDemand demand = MeasureDemand(store_->options(), situation, clock_.Now());
    demand.job = "sim";
    demand.pool = "default";
    input.jobs.push_back(demand);
    const PoolStats pool = autoscaler_.Look(input, clock_.Now()).front();
    result_.last_reason = pool.reason;
    result_.last_text = pool.text;
    if (result_.changes.empty() || result_.wanted() != pool.wanted) {
      result_.changes.push_back({queue_.now(), pool.wanted, pool.reason});
    }
    queue_.After(1, [this] { Look(); });
  }
  void Act() {
    desired_ = options_.actuate          ? options_.actuate(queue_.now(), dice_)
               : result_.changes.empty() ? desired_
                                         : result_.wanted();
    while (static_cast<int32_t>(engines_.size()) < desired_) StartEngine(options_.start_seconds);
    while (static_cast<int32_t>(engines_.size()) > desired_) {
      // Remove the engine with the fewest leases first, as the pod deletion cost requests.
      const EnginePtr idlest = *std::min_element(engines_.begin(), engines_.end(),
                                                 [](const EnginePtr& a, const EnginePtr& b) {
                                                   return a->leases.size() < b->leases.size();
                                                 });
      Drain(idlest);
    }
    queue_.After(kActEvery, [this] { Act(); });
  }

  void Score() {
    for (const RowLease& row :
         Take(store_->LeaseRows(freshet::Task::kScore, "w", 256), "LeaseRows")) {
      auto score = std::make_shared<freshet::Score>();
      score->reward = row.sample.key.index;
      const absl::Status put = store_->PutFields(freshet::Task::kScore, row.token, {score});
      if (!put.ok()) result_.violations.push_back(StrCat("PutFields: ", Message(put)));
    }
    queue_.After(0.1, [this] { Score(); });
  }

  void AccountTrainer() {
    if (waiting_) waited_ += queue_.now() - waiting_since_;
    waiting_since_ = queue_.now();
  }
  void SetWaiting(bool waiting) {
    AccountTrainer();
    waiting_ = waiting;
  }
  void Train() {
    if (!trainer_there_) return;
    const NextBatchReply batch = Take(store_->NextBatch(epoch_, version_ + 1), "NextBatch");
    SetWaiting(!batch.ready);
    if (!batch.ready) {
      queue_.After(0.1, [this, epoch = epoch_] {
        if (epoch == epoch_) Train();
      });
      return;
    }
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch.groups) ordinals.push_back(group.ordinal);
    queue_.After(options_.step_seconds, [this, ordinals, epoch = epoch_] {
      if (!trainer_there_ || epoch != epoch_) return;
      Take(store_->CommitStep(epoch_, version_ + 1, ordinals, StrCat("hash", version_ + 1)),
           "CommitStep");
      Committed();
      Train();
    });
  }
  void Committed() {
    const int64_t version = ++version_;
    if (Late()) ++result_.late_steps;
    for (const EnginePtr& engine : engines_) {
      queue_.After(dice_.Uniform(0.1, 0.4),
                   [engine, version] { engine->version = std::max(engine->version, version); });
    }
    if (version % kCheckpointEvery != 0) return;
    queue_.After(0.2, [this, version, epoch = epoch_] {
      if (epoch != epoch_ || !trainer_there_) return;
      const absl::Status durable = store_->MarkDurable(epoch_, version, "sha");
      if (!durable.ok()) result_.violations.push_back(StrCat("MarkDurable: ", Message(durable)));
      durable_ = version;
    });
  }
  void TrainerDies() {
    SetWaiting(false);
    trainer_there_ = false;
    queue_.After(options_.trainer_away_seconds, [this] {
      trainer_there_ = true;
      const OpenEpochReply reply = Take(store_->OpenEpoch("t0", {0, durable_}), "OpenEpoch");
      epoch_ = reply.epoch;
      for (const JournalEntry& entry : reply.redo) {
        const NextBatchReply batch = Take(store_->NextBatch(epoch_, entry.step), "NextBatch");
        std::vector<int64_t> ordinals;
        for (const TrainGroup& group : batch.groups) ordinals.push_back(group.ordinal);
        Take(store_->CommitStep(epoch_, entry.step, ordinals, entry.content_hash), "CommitStep");
      }
      Train();
    });
  }

  const PoolSimulationOptions options_;
  Dice dice_;
  EventQueue queue_;
  FakeClock clock_;
  const absl::Time start_ = clock_.Now();
  std::unique_ptr<InMemoryTrajectoryStore> store_;
  Autoscaler autoscaler_;
  BufferAges ages_;
  PoolSimulationResult result_;
  std::vector<EnginePtr> engines_;
  int32_t desired_ = 0;
  int64_t next_engine_ = 0;
  int64_t next_ordinal_ = 0;
  int64_t request_ = 0;
  int64_t epoch_ = 0;
  int64_t version_ = 0;
  int64_t durable_ = 0;
  bool trainer_there_ = true;
  bool waiting_ = false;
  double waiting_since_ = 0;
  double waited_ = 0;
  double waited_before_ = 0;
  double late_waited_ = 0;
  double late_busy_ = 0;
  double late_ready_ = 0;
};

}  // namespace

std::vector<double> PoolSimulationResult::Turns() const {
  std::vector<double> turns;
  int direction = 0;
  for (size_t i = 1; i < changes.size(); ++i) {
    const int next = changes[i].wanted > changes[i - 1].wanted ? 1 : -1;
    if (direction != 0 && next != direction) turns.push_back(changes[i].time);
    direction = next;
  }
  return turns;
}

int64_t PoolSimulationResult::MostTurnsWithin(double seconds) const {
  const std::vector<double> turns = Turns();
  int64_t most = 0;
  for (size_t first = 0; first < turns.size(); ++first) {
    most = std::max(most, static_cast<int64_t>(std::count_if(
                              turns.begin() + static_cast<std::ptrdiff_t>(first), turns.end(),
                              [&](double turn) { return turn < turns[first] + seconds; })));
  }
  return most;
}

double PoolSimulationResult::settled() const {
  double since = changes.back().time;
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    if (std::abs(change->wanted - wanted()) > 1) break;
    since = change->time;
  }
  return since;
}

int32_t PoolSimulationResult::Most() const {
  int32_t most = 0;
  for (const Change& change : changes) most = std::max(most, change.wanted);
  return most;
}

PoolSimulationResult SimulatePool(const PoolSimulationOptions& options) {
  return Simulation(options).Run();
}

}  // namespace freshet
