#include "bench/datastore/rl_mix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numbers>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "bench/datastore/cpu_time.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store.h"

namespace freshet {
namespace {

constexpr char kJob[] = "bench";
constexpr size_t kPoolSize = 128;        // responses that a producer cycles through
constexpr int64_t kGroupsPerLease = 8;   // at most
constexpr int64_t kCheckpointEvery = 4;  // steps
constexpr int64_t kRowsPerLease = 256;
constexpr absl::Duration kWait = absl::Seconds(1);
constexpr absl::Duration kSweepPeriod = absl::Milliseconds(200);

int64_t DrawTokens(const RlMixOptions& options, uint64_t a, uint64_t b) {
  // Box-Muller transform (1958).
  const double u = 1.0 - ToUniform(RandomBits(options.seed, a, b, 1));
  const double v = ToUniform(RandomBits(options.seed, a, b, 2));
  const double normal = std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  const double tokens = options.median_tokens * std::exp(options.sigma * normal);
  return std::clamp(static_cast<int64_t>(tokens), int64_t{1}, options.max_tokens);
}

// Response `i` of a producer's pool. Its first token identifies it.
Response PoolResponse(const RlMixOptions& options, uint64_t producer, uint64_t i) {
  const auto tokens = static_cast<size_t>(DrawTokens(options, producer, i));
  Response response;
  response.response_ids.resize(tokens);
  response.behavior_logprobs.resize(tokens);
  response.loss_mask.assign(tokens, 1);
  for (size_t t = 0; t < tokens; ++t) {
    const uint64_t bits = RandomBits(options.seed, producer, i, 100 + t);
    response.response_ids[t] = static_cast<int32_t>(bits % 150'000);
    response.behavior_logprobs[t] = -static_cast<float>(ToUniform(bits));
  }
  response.response_ids[0] = static_cast<int32_t>(producer * kPoolSize + i);
  response.spans = {{{0, 0}, 0, static_cast<int32_t>(tokens)}};
  response.finish = FinishReason::kStop;
  return response;
}

StoreOptions MixStoreOptions(const RlMixOptions& options) {
  StoreOptions store;
  store.job = kJob;
  store.staleness.max = options.staleness;
  store.staleness.groups_per_step = options.groups_per_step;
  store.staleness.max_in_flight = (options.staleness + 1) * options.groups_per_step;
  store.group_size = options.group_size;
  store.last_step = 1'000'000;
  store.capacity_groups =
      (options.staleness + 1 + 2 * (kCheckpointEvery + 1)) * options.groups_per_step;
  store.max_queued_prompts = 1024;
  return store;
}

// One run. Members are threads, each with its own Redis client, like separate processes.
class Mix {
 public:
  explicit Mix(const RlMixOptions& options) : options_(options) {
    for (int p = 0; p < options_.producers; ++p) {
      auto& pool = pools_.emplace_back();
      for (size_t i = 0; i < kPoolSize; ++i) {
        pool.push_back(
            std::make_shared<Response>(PoolResponse(options_, static_cast<uint64_t>(p), i)));
      }
    }
    const int64_t per_step = options_.groups_per_step * options_.group_size;
    steps_ = (options_.samples + per_step - 1) / per_step;
  }

  absl::StatusOr<RlMixResult> Run();

 private:
  using Store = std::unique_ptr<RedisTrajectoryStore>;

  absl::StatusOr<Store> Open(RedisStoreSettings settings = {});
  absl::Status Produce(TrajectoryStore& store, int producer);
  absl::Status PutGroup(TrajectoryStore& store, const GroupLease& lease, int producer);
  absl::Status ScoreRows(TrajectoryStore& store);
  absl::Status Control(TrajectoryStore& store);
  absl::Status Train(TrajectoryStore& store);
  absl::Status TrainOn(const NextBatchReply& batch, int64_t step);
  void Check(const TrainGroup& group, int64_t step);
  // Runs `work` on its own store in a thread. An error stops all members.
  template <typename Work>
  std::jthread Member(Work work, RedisStoreSettings settings = {});
  void Stop(const absl::Status& status);

  const RlMixOptions options_;
  int64_t steps_ = 0;
  std::vector<std::vector<std::shared_ptr<Response>>> pools_;
  std::atomic<int64_t> version_{0};
  std::atomic<int64_t> groups_put_{0};
  std::atomic<bool> stopped_{false};
  absl::Time start_;
  double last_claim_seconds_ = 0;  // of the trainer
  RlMixResult result_;
  Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::vector<TrajectoryStore*> stores_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<Mix::Store> Mix::Open(RedisStoreSettings settings) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<RedisClient> client,
                           RedisClient::Create(options_.redis));
  return RedisTrajectoryStore::Create(std::move(client), MixStoreOptions(options_), {},
                                      std::move(settings));
}

void Mix::Stop(const absl::Status& status) {
  stopped_ = true;
  MutexLock lock(mu_);
  status_.Update(status);
  for (TrajectoryStore* store : stores_) store->Close();
}

template <typename Work>
std::jthread Mix::Member(Work work, RedisStoreSettings settings) {
  return std::jthread([this, work, settings = std::move(settings)] {
    absl::StatusOr<Store> store = Open(settings);
    if (!store.ok()) return Stop(store.status());
    {
      MutexLock lock(mu_);
      stores_.push_back(store->get());
    }
    const absl::Status status = work(**store);
    if (!status.ok()) Stop(status);
    MutexLock lock(mu_);
    std::erase(stores_, store->get());
  });
}

absl::Status Mix::PutGroup(TrajectoryStore& store, const GroupLease& lease, int producer) {
  const auto& pool = pools_[static_cast<size_t>(producer)];
  std::vector<SamplePut> puts;
  for (const int32_t index : lease.missing) {
    const size_t i = RandomBits(options_.seed, static_cast<uint64_t>(lease.ordinal),
                                static_cast<uint64_t>(index)) %
                     kPoolSize;
    puts.push_back({lease.token, index, pool[i]});
    if (options_.scorer) continue;
    auto score = std::make_shared<Score>();
    score->reward = static_cast<double>(i % 2);
    score->components["exact"] = score->reward;
    puts.back().score = std::move(score);
  }
  for (const SamplePut& put : puts) {
    // Safe: PutSamples copies the bytes before it returns, so nobody else reads the response.
    const_cast<Response&>(*put.response).spans[0].policy.version = version_.load();
  }
  FRESHET_ASSIGN_OR_RETURN(const std::vector<absl::Status> statuses, store.PutSamples(puts));
  for (const absl::Status& status : statuses) FRESHET_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status Mix::Produce(TrajectoryStore& store, int producer) {
  LeaseRequest request;
  request.worker = StrCat("producer-", producer);
  request.max_groups = kGroupsPerLease;
  for (int64_t n = 0; !stopped_; ++n) {
    const uint64_t seen = store.ChangeCount(Topic::kAdmission);
    request.request_id = StrCat(n);
    request.engine = {0, version_.load()};
    FRESHET_ASSIGN_OR_RETURN(const LeaseReply reply, store.LeasePrompts(request));
    for (const GroupLease& lease : reply.leases) {
      if (options_.samples_per_second > 0) {
        const double groups_per_second = options_.samples_per_second / options_.group_size;
        absl::SleepFor(start_ + absl::Seconds(groups_put_.fetch_add(1) / groups_per_second) -
                       absl::Now());
      }
      if (stopped_) return absl::OkStatus();
      FRESHET_RETURN_IF_ERROR(PutGroup(store, lease, producer));
    }
    if (reply.leases.empty() && !stopped_) store.AwaitChange(Topic::kAdmission, seen, kWait);
  }
  return absl::OkStatus();
}

absl::Status Mix::ScoreRows(TrajectoryStore& store) {
  while (!stopped_) {
    const uint64_t seen = store.ChangeCount(Topic::kRows);
    FRESHET_ASSIGN_OR_RETURN(const std::vector<RowLease> rows,
                             store.LeaseRows(Task::kScore, "scorer", kRowsPerLease));
    std::vector<RowPut> puts;
    for (const RowLease& row : rows) {
      auto score = std::make_shared<Score>();
      score->reward = row.sample.response->response_ids[0] % 2;
      score->components["exact"] = score->reward;
      puts.push_back({row.token, {std::move(score)}});
    }
    FRESHET_ASSIGN_OR_RETURN(const std::vector<absl::Status> statuses,
                             store.PutRows(Task::kScore, puts));
    for (const absl::Status& status : statuses) FRESHET_RETURN_IF_ERROR(status);
    if (rows.size() < kRowsPerLease && !stopped_) store.AwaitChange(Topic::kRows, seen, kWait);
  }
  return absl::OkStatus();
}

absl::Status Mix::Control(TrajectoryStore& store) {
  int64_t next = 0;
  absl::Time next_sweep = absl::Now();
  while (!stopped_) {
    const uint64_t seen = store.ChangeCount(Topic::kPrompts);
    std::vector<Prompt> prompts(64);
    for (size_t i = 0; i < prompts.size(); ++i) {
      prompts[i].ordinal = next + static_cast<int64_t>(i);
      prompts[i].prompt_ids.assign(128, static_cast<int32_t>(i));
      prompts[i].attributes["answer"] = "42";
    }
    FRESHET_ASSIGN_OR_RETURN(const PutPromptsReply reply, store.PutPrompts(prompts));
    next = reply.high_water + 1;
    if (absl::Now() >= next_sweep) {
      FRESHET_RETURN_IF_ERROR(store.Sweep().status());
      next_sweep = absl::Now() + kSweepPeriod;
    }
    if (reply.full && !stopped_) store.AwaitChange(Topic::kPrompts, seen, kSweepPeriod);
  }
  return absl::OkStatus();
}

void Mix::Check(const TrainGroup& group, int64_t step) {
  if (group.samples.size() != static_cast<size_t>(options_.group_size)) ++result_.violations;
  for (const TrainSample& sample : group.samples) {
    const Response& response = *sample.sample.response;
    const auto number = static_cast<size_t>(response.response_ids[0]);
    const Response& sent = *pools_[number / kPoolSize][number % kPoolSize];
    const bool same = response.response_ids.size() == sent.response_ids.size() &&
                      response.behavior_logprobs.back() == sent.behavior_logprobs.back();
    const bool fresh = step - 1 - sample.min_version <= options_.staleness;
    if (!same || !fresh || sample.sample.score == nullptr) ++result_.violations;
    ++result_.samples;
  }
}

absl::Status Mix::Train(TrajectoryStore& store) {
  FRESHET_ASSIGN_OR_RETURN(const OpenEpochReply opened, store.OpenEpoch("trainer", {}));
  for (int64_t step = 1; step <= steps_ && !stopped_;) {
    const uint64_t seen = store.ChangeCount(Topic::kBatch);
    const absl::Time start = absl::Now();
    FRESHET_ASSIGN_OR_RETURN(const NextBatchReply batch, store.NextBatch(opened.epoch, step));
    if (!batch.ready) {
      store.AwaitChange(Topic::kBatch, seen, kWait);
      continue;
    }
    result_.claim_seconds.push_back(last_claim_seconds_);
    result_.batch_seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch.groups) {
      Check(group, step);
      ordinals.push_back(group.ordinal);
    }
    FRESHET_RETURN_IF_ERROR(
        store.CommitStep(opened.epoch, step, ordinals, StrCat("hash", step)).status());
    version_ = step;
    if (step % kCheckpointEvery == 0) {
      FRESHET_RETURN_IF_ERROR(store.MarkDurable(opened.epoch, step, "sha"));
    }
    ++step;
  }
  result_.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  Stop(absl::OkStatus());
  return absl::OkStatus();
}

absl::StatusOr<RlMixResult> Mix::Run() {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<RedisClient> client,
                           RedisClient::Create(options_.redis));
  FRESHET_RETURN_IF_ERROR(DeleteJobKeys(*client, {kJob}).status());
  FRESHET_RETURN_IF_ERROR(Open().status());
  const auto server_cpu = [&client]() -> absl::StatusOr<double> {
    FRESHET_ASSIGN_OR_RETURN(const RedisReply info, client->Command({"INFO", "cpu"}));
    return RedisCpuSeconds(info.text);
  };
  FRESHET_ASSIGN_OR_RETURN(const double server_before, server_cpu());
  const double cpu = CpuSeconds();
  start_ = absl::Now();
  {
    std::vector<std::jthread> members;
    RedisStoreSettings settings;
    settings.on_script = [this](std::string_view script, absl::Duration took) {
      if (script == "next_batch") last_claim_seconds_ = absl::ToDoubleSeconds(took);
    };
    members.push_back(Member([this](TrajectoryStore& store) { return Train(store); }, settings));
    members.push_back(Member([this](TrajectoryStore& store) { return Control(store); }));
    if (options_.scorer) {
      members.push_back(Member([this](TrajectoryStore& store) { return ScoreRows(store); }));
    }
    for (int p = 0; p < options_.producers; ++p) {
      members.push_back(Member([this, p](TrajectoryStore& store) { return Produce(store, p); }));
    }
  }
  result_.client_cpu_seconds = CpuSeconds() - cpu;
  FRESHET_ASSIGN_OR_RETURN(const double server_after, server_cpu());
  result_.server_cpu_seconds = server_after - server_before;
  {
    MutexLock lock(mu_);
    FRESHET_RETURN_IF_ERROR(status_);
  }
  FRESHET_RETURN_IF_ERROR(DeleteJobKeys(*client, {kJob}).status());
  return std::move(result_);
}

}  // namespace

absl::StatusOr<RlMixResult> RunRlMix(const RlMixOptions& options) { return Mix(options).Run(); }

int64_t MeanRecordBytes(const RlMixOptions& options) {
  double bytes = 0;
  for (int p = 0; p < options.producers; ++p) {
    for (size_t i = 0; i < kPoolSize; ++i) {
      const auto record = EncodeResponse(PoolResponse(options, static_cast<uint64_t>(p), i));
      bytes += record.ok() ? static_cast<double>(record->size()) : 0;
    }
  }
  return static_cast<int64_t>(bytes / (options.producers * static_cast<double>(kPoolSize)));
}

absl::StatusOr<std::vector<double>> ServerTimeOfClaims(const RlMixOptions& options, int claims) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<RedisClient> client, RedisClient::Create(options.redis));
  FRESHET_RETURN_IF_ERROR(DeleteJobKeys(*client, {kJob}).status());
  FRESHET_ASSIGN_OR_RETURN(const std::unique_ptr<RedisTrajectoryStore> store,
                           RedisTrajectoryStore::Create(client, MixStoreOptions(options), {}, {}));
  FRESHET_ASSIGN_OR_RETURN(const OpenEpochReply opened, store->OpenEpoch("trainer", {}));
  const auto response = std::make_shared<Response>(PoolResponse(options, 0, 0));
  std::vector<double> seconds;
  int64_t ordinal = 0;
  // The first claim also compiles the script.
  for (int64_t step = 1; step <= claims + 1; ++step) {
    std::vector<Prompt> prompts(static_cast<size_t>(options.groups_per_step));
    for (Prompt& prompt : prompts) prompt.ordinal = ordinal++;
    FRESHET_RETURN_IF_ERROR(store->PutPrompts(prompts).status());
    FRESHET_ASSIGN_OR_RETURN(
        const LeaseReply leased,
        store->LeasePrompts({"producer", "", {0, step - 1}, options.groups_per_step}));
    response->spans[0].policy.version = step - 1;
    std::vector<SamplePut> puts;
    for (const GroupLease& lease : leased.leases) {
      for (const int32_t index : lease.missing) puts.push_back({lease.token, index, response});
    }
    FRESHET_RETURN_IF_ERROR(store->PutSamples(puts).status());
    FRESHET_ASSIGN_OR_RETURN(const std::vector<RowLease> rows,
                             store->LeaseRows(Task::kScore, "scorer", std::ssize(puts)));
    std::vector<RowPut> scores;
    scores.reserve(rows.size());
    for (const RowLease& row : rows) {
      scores.push_back({row.token, {std::make_shared<const Score>()}});
    }
    FRESHET_RETURN_IF_ERROR(store->PutRows(Task::kScore, scores).status());
    FRESHET_RETURN_IF_ERROR(client->Command({"SLOWLOG", "RESET"}).status());
    FRESHET_RETURN_IF_ERROR(
        client->Command({"CONFIG", "SET", "slowlog-max-len", "100000"}).status());
    FRESHET_RETURN_IF_ERROR(
        client->Command({"CONFIG", "SET", "slowlog-log-slower-than", "0"}).status());
    FRESHET_ASSIGN_OR_RETURN(const NextBatchReply batch, store->NextBatch(opened.epoch, step));
    // Entries are newest first: MGETs of the bytes, then the script.
    FRESHET_ASSIGN_OR_RETURN(const RedisReply entries, client->Command({"SLOWLOG", "GET", "-1"}));
    FRESHET_RETURN_IF_ERROR(
        client->Command({"CONFIG", "SET", "slowlog-log-slower-than", "10000"}).status());
    if (!batch.ready) return Internal("step ", step, " has no batch: ", batch.reason);
    for (const RedisReply& entry : entries.items) {
      if (entry.items.at(3).items.at(0).text != "EVALSHA" || step == 1) continue;
      seconds.push_back(1e-6 * static_cast<double>(entry.items.at(2).integer));
    }
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch.groups) ordinals.push_back(group.ordinal);
    FRESHET_RETURN_IF_ERROR(store->CommitStep(opened.epoch, step, ordinals, "hash").status());
    FRESHET_RETURN_IF_ERROR(store->MarkDurable(opened.epoch, step, "sha"));
  }
  FRESHET_RETURN_IF_ERROR(DeleteJobKeys(*client, {kJob}).status());
  if (seconds.empty()) return Internal("the server's slow log names no script");
  return seconds;
}

}  // namespace freshet
