#include "tests/datastore/staleness_simulation.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "base/str_cat.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "tests/datastore/event_queue.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/simulated_response.h"

namespace freshet {
namespace {

constexpr double kLeaseSeconds = 5;
// Longer than any step, even with several consecutive stragglers.
constexpr double kStuckSeconds = 3000;
constexpr int64_t kPoisonEvery = 16;

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options), dice_(options.seed * 7919 + 17) {
    StoreOptions store;
    store.job = "sim";
    store.staleness = {options.eta, options.disposition, options.groups_per_step,
                       4 * (options.eta + 1) * options.groups_per_step};
    store.group_size = options.group_size;
    store.last_step = options.steps;
    store.capacity_groups = (options.eta + 1 + 2 * kCheckpointEvery) * options.groups_per_step;
    store.max_queued_prompts = 8;
    store.lease_ttl = absl::Seconds(kLeaseSeconds);
    store.filter.zero_variance = options.faults && options.group_size > 1;
    store.max_filtered_in_a_row = 1000;
    store.max_row_failures = 4;
    store_ = std::move(InMemoryTrajectoryStore::Create(store, {}, clock_)).value();
    engines_.resize(static_cast<size_t>(options.num_engines), 0);
  }

  SimulationResult Run() {
    OpenEpoch(0);
    Feed();
    for (size_t i = 0; i < engines_.size(); ++i) AskForPrompts(i);
    Score();
    Train();
    Sweep();
    double last_progress = 0;
    int64_t last_version = 0;
    while (version_ < options_.steps && queue_.Step()) {
      clock_.Advance(absl::Seconds(queue_.now()) - (clock_.Now() - start_));
      if (version_ > last_version) {
        last_version = version_;
        last_progress = queue_.now();
      }
      if (queue_.now() - last_progress > kStuckSeconds) {
        result_.stuck = store_->Explain()->text;
        break;
      }
    }
    result_.finished = version_ == options_.steps;
    result_.ledger = *store_->ReadLedger(0, 1'000'000);
    result_.stats = *store_->Stats();
    return std::move(result_);
  }

 private:
  static constexpr int64_t kCheckpointEvery = 3;

  bool Fault(double p) { return options_.faults && dice_.Chance(p); }
  void Expect(const absl::Status& status, const char* what) {
    if (!status.ok()) result_.errors.push_back(StrCat(what, ": ", Message(status)));
  }

  void Feed() {
    std::vector<Prompt> prompts;
    for (int64_t i = 0; i < 8; ++i) {
      Prompt prompt;
      prompt.ordinal = next_ordinal_ + i;
      prompt.prompt_ids = {1};
      prompts.push_back(std::move(prompt));
    }
    const auto reply = store_->PutPrompts(prompts);
    Expect(reply.status(), "PutPrompts");
    if (reply.ok()) next_ordinal_ += reply->accepted;
    queue_.After(0.3, [this] { Feed(); });
  }
  void Sweep() {
    Expect(store_->Sweep().status(), "Sweep");
    queue_.After(1.0, [this] { Sweep(); });
  }

  // Rollout. A worker reads its version once, so a lease request may carry an old version.
  void AskForPrompts(size_t engine) {
    const std::string worker = StrCat("w", engine);
    const auto reply = store_->LeasePrompts(
        {worker, StrCat(request_++), {0, engines_[engine]}, 1 + dice_.Below(3)});
    Expect(reply.status(), "LeasePrompts");
    if (reply.ok()) {
      for (const GroupLease& lease : reply->leases) {
        ++result_.admitted[engines_[engine]];
        Generate(engine, lease);
      }
    }
    queue_.After(dice_.Uniform(0.1, 0.5), [this, engine] { AskForPrompts(engine); });
  }
  void Generate(size_t engine, const GroupLease& lease) {
    if (options_.faults && lease.ordinal % kPoisonEvery == kPoisonEvery - 1) return Poison(lease);
    const bool vanishes = Fault(0.06);
    const bool drains = !vanishes && Fault(0.05);
    // The environment hangs.
    if (!vanishes && !drains && Fault(0.08)) {
      queue_.After(dice_.Uniform(), [this, token = lease.token] {
        (void)store_->HandBackLease(token, "no answer");
      });
      return;
    }
    double longest = 0;
    const int64_t begin_version = engines_[engine];
    for (size_t i = 0; i < lease.missing.size(); ++i) {
      double seconds = SampleSeconds(dice_);
      // A vanished worker may put samples long after its lease expired.
      if (vanishes && dice_.Chance(0.6)) seconds += 4 * kLeaseSeconds;
      longest = std::max(longest, seconds);
      if (drains && dice_.Chance(0.7)) continue;
      const int32_t index = lease.missing[i];
      queue_.After(seconds, [this, engine, lease, i, index, begin_version, vanishes] {
        const absl::Status status = store_->PutSample(
            lease.token, index, FinishAcross(lease.partials[i], begin_version, engines_[engine]));
        if (status.ok()) return;
        if (status.code() == absl::StatusCode::kFailedPrecondition) {
          ++result_.refused_zombies;
          // Without faults, only a disposition takes a lease from a live worker.
          if (vanishes || options_.disposition == Disposition::kDrop ||
              options_.disposition == Disposition::kRequeue || options_.faults) {
            return;
          }
        }
        Expect(status, "PutSample");
      });
    }
    if (drains)
      queue_.After(longest * dice_.Uniform(), [this, engine, lease, begin_version] {
        HandBack(engine, lease, begin_version);
      });
    if (!vanishes) KeepAlive(engine, lease.token, longest);
  }
  // A prompt that always kills its engine, fails in its environment or hangs it.
  void Poison(const GroupLease& lease) {
    const bool hangs = lease.ordinal / kPoisonEvery % 2 == 0;
    if (!hangs && dice_.Chance(0.5)) return;
    queue_.After(dice_.Uniform(), [this, token = lease.token, hangs] {
      // Refused if the disposition took the group.
      (void)(hangs ? store_->HandBackLease(token, "hangs") : store_->FailLease(token, "raised"));
    });
  }
  void KeepAlive(size_t engine, int64_t token, double left) {
    if (left <= kLeaseSeconds / 2) return;
    queue_.After(kLeaseSeconds / 2, [this, engine, token, left] {
      const auto dead = store_->RenewLeases(StrCat("w", engine), {token});
      Expect(dead.status(), "RenewLeases");
      if (dead.ok() && dead->empty()) KeepAlive(engine, token, left - kLeaseSeconds / 2);
    });
  }
  void HandBack(size_t engine, const GroupLease& lease, int64_t begin_version) {
    std::vector<int32_t> indices;
    std::vector<Response> partials;
    for (size_t i = 0; i < lease.missing.size(); ++i) {
      if (dice_.Chance(0.3)) continue;
      indices.push_back(lease.missing[i]);
      partials.push_back(dice_.Chance(0.5)
                             ? FinishAcross(lease.partials[i], begin_version, engines_[engine])
                             : Response{});
    }
    // Refused if one of these samples is finished or the lease has ended; then the lease expires.
    (void)store_->ReturnLease(lease.token, indices, partials);
  }

  void Score() {
    const auto rows = store_->LeaseRows(Task::kScore, "r0", 8);
    Expect(rows.status(), "LeaseRows");
    for (const RowLease& row : rows.ok() ? *rows : std::vector<RowLease>{}) {
      if (Fault(0.01)) continue;  // the worker vanishes
      const bool fails = Fault(0.05);
      queue_.After(dice_.Uniform(0.05, 0.6), [this, row, fails] {
        if (fails) {
          (void)store_->FailRow(Task::kScore, row.token, "no route");
          return;
        }
        // 15 % of the groups get equal rewards.
        const SampleKey& key = row.sample.key;
        const bool equal =
            RandomBits(options_.seed, static_cast<uint64_t>(key.ordinal), 3) % 100 < 15;
        auto score = std::make_shared<freshet::Score>();
        score->reward = equal ? 0.0 : key.index;
        (void)store_->PutFields(Task::kScore, row.token, {score});
      });
    }
    queue_.After(0.2, [this] { Score(); });
  }

  void OpenEpoch(int64_t loaded) {
    const auto reply = store_->OpenEpoch("t0", {0, loaded});
    Expect(reply.status(), "OpenEpoch");
    epoch_ = reply->epoch;
    for (const JournalEntry& entry : reply->redo) {
      const auto batch = store_->NextBatch(epoch_, entry.step);
      Expect(batch.status(), "NextBatch (redo)");
      Expect(store_->CommitStep(epoch_, entry.step, Ordinals(*batch), entry.content_hash).status(),
             "CommitStep (redo)");
    }
  }
  static std::vector<int64_t> Ordinals(const NextBatchReply& batch) {
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch.groups) ordinals.push_back(group.ordinal);
    return ordinals;
  }
  void Train() {
    const int64_t step = version_ + 1;
    if (step > options_.steps) return;
    const auto batch = store_->NextBatch(epoch_, step);
    Expect(batch.status(), "NextBatch");
    if (!batch.ok() || !batch->ready) {
      queue_.After(0.1, [this] { Train(); });
      return;
    }
    if (Fault(0.08)) {
      ++result_.trainer_deaths;
      queue_.After(dice_.Uniform(1, 4), [this] {
        OpenEpoch(durable_);
        Train();
      });
      return;
    }
    queue_.After(dice_.Uniform(0.3, 1.0), [this, step, ordinals = Ordinals(*batch)] {
      Expect(store_->CommitStep(epoch_, step, ordinals, StrCat("hash", step)).status(),
             "CommitStep");
      Committed(step);
      Train();
    });
  }
  void Committed(int64_t step) {
    version_ = step;
    for (size_t engine = 0; engine < engines_.size(); ++engine) {
      queue_.After(SyncSeconds(dice_),
                   [this, engine, step] { engines_[engine] = std::max(engines_[engine], step); });
    }
    if (step % kCheckpointEvery != 0) return;
    queue_.After(dice_.Uniform(0.1, 1.0), [this, step] {
      Expect(store_->MarkDurable(epoch_, step, "sha"), "MarkDurable");
      durable_ = std::max(durable_, step);
    });
  }

  const SimulationOptions options_;
  Dice dice_;
  EventQueue queue_;
  FakeClock clock_;
  const absl::Time start_ = clock_.Now();
  std::unique_ptr<InMemoryTrajectoryStore> store_;
  SimulationResult result_;
  std::vector<int64_t> engines_;  // version of each
  int64_t next_ordinal_ = 0;
  int64_t request_ = 0;
  int64_t epoch_ = 0;
  int64_t version_ = 0;
  int64_t durable_ = 0;
};

// Checks the staleness of a trained row from its spans. All tokens of the simulation bear loss.
std::string RowViolation(const SimulationOptions& options, const LedgerRow& row) {
  const bool mask = options.disposition == Disposition::kMask;
  const int64_t horizon = row.train_version - options.eta;
  int64_t loss_tokens = 0;
  int64_t masked_tokens = 0;
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (const Span& span : row.spans) {
    if (span.policy.version > row.train_version) return "sampled by a later version";
    if (mask && span.policy.version < horizon) {
      masked_tokens += span.end - span.begin;
      continue;
    }
    loss_tokens += span.end - span.begin;
    oldest = std::min(oldest, span.policy.version);
  }
  if (loss_tokens > 0 && oldest < horizon) return "beyond the bound";
  if (loss_tokens > 0 && oldest != row.min_version) return "wrong min_version";
  if (loss_tokens != row.loss_tokens) return "wrong loss_tokens";
  if (masked_tokens != row.masked_tokens) return "wrong masked_tokens";
  if (row.train_version != row.step - 1) return "wrong train_version";
  return "";
}

}  // namespace

SimulationResult SimulateJob(const SimulationOptions& options) { return Simulation(options).Run(); }

std::vector<std::string> LedgerViolations(const SimulationOptions& options,
                                          const std::vector<LedgerRow>& ledger) {
  std::vector<std::string> violations;
  std::map<std::string, int64_t> trained;                         // uid -> step
  std::map<int64_t, std::map<int64_t, std::set<int32_t>>> steps;  // step -> ordinal -> samples
  std::set<std::string> ended;
  int64_t seq = 0;
  for (const LedgerRow& row : ledger) {
    if (row.seq != ++seq) violations.push_back(StrCat("seq ", row.seq, " after ", seq - 1));
    if (row.event == LedgerEvent::kOpen || row.event == LedgerEvent::kDurable) continue;
    if (row.event != LedgerEvent::kTrained) {
      if (!ended.insert(row.uid).second) violations.push_back(StrCat(row.uid, " ended twice"));
      continue;
    }
    const std::string fault = RowViolation(options, row);
    if (!fault.empty()) violations.push_back(StrCat(row.uid, ": ", fault));
    if (row.redo) {
      const auto it = trained.find(row.uid);
      if (it == trained.end() || it->second != row.step) {
        violations.push_back(StrCat(row.uid, ": redone in another step"));
      }
      continue;
    }
    if (!trained.emplace(row.uid, row.step).second) {
      violations.push_back(StrCat(row.uid, " trained twice"));
    }
    steps[row.step][row.prompt].insert(row.sample);
  }
  for (const auto& [uid, step] : trained) {
    if (ended.contains(uid)) violations.push_back(StrCat(uid, " trained and ended"));
  }
  for (int64_t step = 1; step <= options.steps; ++step) {
    const auto& groups = steps[step];
    if (static_cast<int64_t>(groups.size()) != options.groups_per_step) {
      violations.push_back(StrCat("step ", step, " trained ", groups.size(), " groups"));
    }
    for (const auto& [ordinal, samples] : groups) {
      if (samples.size() != static_cast<size_t>(options.group_size)) {
        violations.push_back(StrCat("step ", step, ": group ", ordinal, " is not whole"));
      }
    }
  }
  return violations;
}

}  // namespace freshet
