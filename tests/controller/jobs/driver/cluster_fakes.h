#ifndef FRESHET_TESTS_CONTROLLER_JOBS_DRIVER_CLUSTER_FAKES_H_
#define FRESHET_TESTS_CONTROLLER_JOBS_DRIVER_CLUSTER_FAKES_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "controller/cluster/worker_hub.h"
#include "controller/jobs/driver/controller.h"
#include "controller/jobs/driver/job_ports.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "model/model_config.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/forwarding_trajectory_store.h"
#include "tests/testing/in_memory_event_log.h"
#include "tests/testing/in_memory_job_records.h"
#include "tests/testing/in_memory_leader_lease.h"
#include "text/char_tokenizer.h"

namespace freshet {

// Polls until `holds`. Returns false after 20 s of real time.
inline bool Eventually(const std::function<bool()>& holds) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  Notification never;
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    never.WaitFor(absl::Milliseconds(2));
  }
  return true;
}

// A job of 4 steps of 2 groups of 2 samples, without evaluations.
inline std::string TinyClusterJob() {
  return "name: tiny\n"
         "model: {init: random, config: {hidden_size: 8, num_hidden_layers: 1, "
         "num_attention_heads: 2, intermediate_size: 16, max_position_embeddings: 16}}\n"
         "tokenizer: {type: char, alphabet: \"0123456789+=\"}\n"
         "dataset: {type: arithmetic, train_rows: 50}\n"
         "group_size: 2\n"
         "prompts_per_step: 2\n"
         "rollout: {max_new_tokens: 4}\n"
         "reward: {components: {exact: {type: exact_match}}}\n"
         "trainer: {steps: 4}\n"
         "optimizer: {learning_rate: 1.0e-3}\n"
         "checkpoint: {every_steps: 1}\n";
}

// In-memory stores, shared by the controllers of a test as Redis would be.
class MemoryJobStores final : public JobStores {
 public:
  // `events` holds the jobs' streams.
  MemoryJobStores(const Clock& clock, const std::unique_ptr<InMemoryEventLog>& events)
      : clock_(clock), events_(events) {}

  absl::StatusOr<std::shared_ptr<TrajectoryStore>> Open(const StoreOptions& options) override {
    MutexLock lock(mu_);
    std::shared_ptr<InMemoryTrajectoryStore>& store = stores_[options.job];
    if (store == nullptr) {
      auto made = InMemoryTrajectoryStore::Create(options, StoreOrigin(), clock_);
      if (!made.ok()) return made.status();
      store = *std::move(made);
    }
    return Handle(store);
  }
  absl::StatusOr<std::shared_ptr<TrajectoryStore>> Find(const std::string& job) override {
    MutexLock lock(mu_);
    const auto found = stores_.find(job);
    if (found == stores_.end()) return NotFound("job ", job, " has no store");
    return Handle(found->second);
  }
  absl::Status Delete(const JobRemoval& removal) override {
    MutexLock lock(mu_);
    removals_.push_back(removal);
    stores_.erase(removal.job);
    for (const std::string& stream : {EventStream(removal.job), SampleStream(removal.job)}) {
      const absl::Status deleted = events_->Delete(stream);
      if (!deleted.ok()) return deleted;
    }
    return absl::OkStatus();
  }
  absl::Status Free(const JobRemoval& removal, bool resumable) override {
    MutexLock lock(mu_);
    freed_[removal.job] = resumable;
    return absl::OkStatus();
  }
  // All Delete calls so far.
  std::vector<JobRemoval> removals() {
    MutexLock lock(mu_);
    return removals_;
  }
  // Freed jobs; the value says whether the job may be resumed.
  std::map<std::string, bool> freed() {
    MutexLock lock(mu_);
    return freed_;
  }

 private:
  // A per-member handle: closing it does not affect other members.
  class Member final : public ForwardingTrajectoryStore {
   public:
    explicit Member(std::shared_ptr<InMemoryTrajectoryStore> store)
        : ForwardingTrajectoryStore(*store), store_(std::move(store)) {}
    uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
      if (closed_) return store_->ChangeCount(topic);
      return store_->AwaitChange(topic, seen, std::min(timeout, absl::Milliseconds(20)));
    }
    void Close() override { closed_ = true; }

   private:
    const std::shared_ptr<InMemoryTrajectoryStore> store_;
    std::atomic<bool> closed_{false};
  };
  static std::shared_ptr<TrajectoryStore> Handle(std::shared_ptr<InMemoryTrajectoryStore> store) {
    return std::make_shared<Member>(std::move(store));
  }

  const Clock& clock_;
  const std::unique_ptr<InMemoryEventLog>& events_;
  Mutex mu_;
  std::map<std::string, std::shared_ptr<InMemoryTrajectoryStore>> stores_ ABSL_GUARDED_BY(mu_);
  std::vector<JobRemoval> removals_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, bool> freed_ ABSL_GUARDED_BY(mu_);
};

// Describes TinyClusterJob's model and has one checkpoint for every job.
class FakeTrainerGateway final : public TrainerGateway {
 public:
  absl::StatusOr<trainer::v1::ModelBundle> DescribeModel(const std::string& address,
                                                         const job::v1::JobSpec& spec,
                                                         absl::Duration) override {
    MutexLock lock(mu_);
    if (!failure_.ok()) return failure_;
    described_.push_back(address);
    ModelConfig config;
    config.vocab_size = (*CreateCharTokenizer(spec.tokenizer().alphabet()))->vocab_size();
    config.hidden_size = 8;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 2;
    config.intermediate_size = 16;
    config.max_position_embeddings = spec.model().config().max_position_embeddings();
    config.DeriveDefaults();
    trainer::v1::ModelBundle bundle;
    bundle.set_config_json(config.ToJson());
    return bundle;
  }
  absl::StatusOr<trainer::v1::ListCheckpointsReply> ListCheckpoints(const std::string&,
                                                                    const std::string& job,
                                                                    absl::Duration) override {
    trainer::v1::ListCheckpointsReply reply;
    trainer::v1::CheckpointInfo* info = reply.add_checkpoints();
    info->set_version(3);
    info->set_path(StrCat("/runs/", job, "/checkpoints/step-3"));
    return reply;
  }
  absl::Status ExportCheckpoint(
      const std::string&, const trainer::v1::ExportCheckpointRequest& request, absl::Duration,
      const std::function<absl::Status(const trainer::v1::CheckpointChunk&)>& sink) override {
    if (request.has_generated_after()) {
      trainer::v1::CheckpointChunk chunk;
      chunk.set_path(StrCat("after ", request.generated_after()));
      return sink(chunk);
    }
    if (request.version() > 3) return NotFound("no checkpoint of version ", request.version());
    for (const char* path : {"config.json", "model.safetensors"}) {
      trainer::v1::CheckpointChunk chunk;
      chunk.set_path(path);
      chunk.set_data(StrCat("content of ", path));
      const absl::Status status = sink(chunk);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Status DeleteJobFiles(const std::string&, const std::string& job, absl::Duration) override {
    MutexLock lock(mu_);
    deleted_.push_back(job);
    return absl::OkStatus();
  }

  // Makes DescribeModel return `status`.
  void Fail(absl::Status status) {
    MutexLock lock(mu_);
    failure_ = std::move(status);
  }
  std::vector<std::string> deleted() {
    MutexLock lock(mu_);
    return deleted_;
  }
  size_t described() {
    MutexLock lock(mu_);
    return described_.size();
  }

 private:
  Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> described_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> deleted_ ABSL_GUARDED_BY(mu_);
};

// Holds the first thread that passes until it is opened. Thread-safe.
class Gate {
 public:
  void Pass() {
    if (passed_.exchange(true)) return;
    reached_.Notify();
    opened_.WaitFor(absl::Seconds(20));
  }
  bool AwaitThread() { return reached_.WaitFor(absl::Seconds(20)); }
  void Open() { opened_.Notify(); }

 private:
  std::atomic<bool> passed_{false};
  Notification reached_;
  Notification opened_;
};

// Job records whose calls can fail, before or after the write takes effect, or be held up.
class LossyJobRecords final : public JobRecordStore {
 public:
  absl::StatusOr<int64_t> Create(const std::string& id, const std::string& value,
                                 int64_t fence) override {
    Hold(creating, id);
    return records_.Create(id, value, fence);
  }
  absl::StatusOr<int64_t> Update(const std::string& id, int64_t expected_revision,
                                 const std::string& value, int64_t fence) override {
    JobRecord record;
    const bool starts = id.starts_with("job/") && record.ParseFromString(value) &&
                        record.state() == job::v1::JOB_STATE_STARTING;
    const bool refused = starts && refused_starts.load() > 0 && refused_starts.fetch_sub(1) > 0;
    if (refused) return StatusOf(absl::StatusCode::kUnavailable, "no connection");
    auto written = records_.Update(id, expected_revision, value, fence);
    if (starts && lost_starts.load() > 0) {
      unlisted = true;
      --lost_starts;
      return StatusOf(absl::StatusCode::kUnavailable, "the connection ended");
    }
    return written;
  }
  absl::StatusOr<StoredRecord> Get(const std::string& id) override {
    ++reads;
    auto record = records_.Get(id);
    Hold(reading, id);
    return record;
  }
  absl::StatusOr<std::vector<StoredRecord>> List() override {
    if (!unlisted) return records_.List();
    ++refused_lists;
    return StatusOf(absl::StatusCode::kUnavailable, "no connection");
  }
  absl::Status Delete(const std::string& id, int64_t fence) override {
    return records_.Delete(id, fence);
  }
  absl::Status Fence(int64_t fence) override { return records_.Fence(fence); }

  std::atomic<int> lost_starts{0};     // job starts that are written but reported as failed
  std::atomic<int> refused_starts{0};  // job starts that fail
  std::atomic<bool> unlisted{false};   // List fails after a lost start
  std::atomic<int> refused_lists{0};
  std::atomic<int> reads{0};  // calls of Get; each turn of a driver begins with one
  // Hold up the calls for jobs: before a Create, and at the end of a Get.
  std::atomic<Gate*> creating{nullptr};
  std::atomic<Gate*> reading{nullptr};

 private:
  static void Hold(Gate* gate, const std::string& id) {
    if (gate != nullptr && id.starts_with("job/")) gate->Pass();
  }

  InMemoryJobRecords records_;
};

// State shared by the controllers of a test: the datastore and the workers' services. Time only
// moves when a test advances it, so no worker is lost by accident. Thread periods are short.
struct FakeCluster {
  FakeClock clock;
  LossyJobRecords records;
  std::unique_ptr<InMemoryEventLog> events = *InMemoryEventLog::Create();
  InMemoryLeaderLease lease{clock};
  MemoryJobStores stores{clock, events};
  FakeTrainerGateway trainers;
  ControllerObserver observer;
  PoolOptions pools;
  PoolScaler* scaler = nullptr;
  DataRoots roots = DataRoots::Unlimited();
  absl::Duration other_trainer_after = ControllerTiming().other_trainer_after;

  std::unique_ptr<Controller> MakeController(const std::string& name, OwnLog own_log = {}) {
    ControllerOptions options;
    options.candidate = name;
    options.own_log = std::move(own_log);
    options.pools = pools;
    options.roots = roots;
    options.timing.tick = absl::Milliseconds(5);
    options.timing.retry_first = absl::Milliseconds(5);
    options.timing.other_trainer_after = other_trainer_after;
    // Tests advance the clock by minutes; that must not expire the leader's lease.
    options.timing.leader_ttl = absl::Hours(1);
    options.timing.leader_renewal = absl::Milliseconds(10);
    return std::make_unique<Controller>(
        ControllerPorts{records, *events, lease, stores, trainers, observer, clock, scaler},
        options);
  }
};

// Records the directives of one stream.
class KeptDirectives final : public DirectiveStream {
 public:
  bool Send(const cluster::v1::Directive& directive) override {
    MutexLock lock(mu_);
    if (full_) return false;
    directives_.push_back(directive);
    return true;
  }
  void Finish(const absl::Status& status) override {
    MutexLock lock(mu_);
    if (!finished_) end_ = status;
    finished_ = true;
  }
  std::vector<cluster::v1::Directive> All() {
    MutexLock lock(mu_);
    return directives_;
  }
  bool finished() {
    MutexLock lock(mu_);
    return finished_;
  }
  absl::Status end() {
    MutexLock lock(mu_);
    return end_;
  }
  void Fill() {
    MutexLock lock(mu_);
    full_ = true;
  }

 private:
  Mutex mu_;
  std::vector<cluster::v1::Directive> directives_ ABSL_GUARDED_BY(mu_);
  bool full_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mu_);
};

// A worker without a process: registers with a hub and reports to do what it is told. Tests call
// Beat() once per simulated second.
class HubWorker {
 public:
  HubWorker(cluster::v1::Role role, const std::string& name, const std::string& incarnation = "one",
            const std::string& pool = "") {
    request_.set_role(role);
    request_.set_worker(name);
    request_.set_incarnation(incarnation);
    request_.set_address(name + ":1");
    request_.set_pool(pool);
  }

  void set_site(const std::string& site) { request_.set_site(site); }
  absl::Status Register(WorkerHub& hub) {
    const auto reply = hub.Register(request_);
    if (!reply.ok()) return reply.status();
    hub_ = &hub;
    epoch_ = reply->epoch();
    taken_ = 0;
    stream_ = std::make_shared<KeptDirectives>();
    return Beat();
  }
  // Handles the directives received since the last call and sends a status.
  absl::Status Beat() {
    Take();
    return SendStatus();
  }
  // Sends a status as of the directives handled so far.
  absl::Status SendStatus() {
    cluster::v1::WorkerStatus status;
    status.set_worker(request_.worker());
    status.set_epoch(epoch_);
    status.set_sequence(++sequence_);
    for (const auto& [id, assign] : work_) {
      cluster::v1::AssignmentStatus* work = status.add_assignments();
      *work = reports_[id];
      work->set_assignment_id(id);
      if (work->state() == cluster::v1::AssignmentStatus::STATE_UNSPECIFIED) {
        work->set_state(cluster::v1::AssignmentStatus::STATE_RUNNING);
      }
      if (version_ >= 0) work->mutable_policy()->set_version(version_);
    }
    return hub_->OnStatus(stream_, status);
  }
  // The id of its only assignment, or "".
  std::string Work() {
    Take();
    return work_.size() == 1 ? work_.begin()->first : "";
  }
  const cluster::v1::Assign& assign(const std::string& id) { return work_.at(id); }
  bool paused(const std::string& id) { return work_.at(id).paused(); }
  const std::vector<cluster::v1::Evaluate>& evaluations() {
    Take();
    return evaluations_;
  }
  int unassigned() {
    Take();
    return unassigned_;
  }
  // Sets the status reported for its assignment from the next beat on.
  void Report(const std::string& id, cluster::v1::AssignmentStatus report) {
    reports_[id] = std::move(report);
  }
  void set_version(int64_t version) { version_ = version; }
  int64_t epoch() const { return epoch_; }
  const std::string& name() const { return request_.worker(); }
  std::string lease_name() const { return LeaseName(request_.worker(), epoch_); }
  KeptDirectives& stream() { return *stream_; }
  std::shared_ptr<KeptDirectives> shared_stream() { return stream_; }

 private:
  void Take() {
    const auto all = stream_->All();
    for (; taken_ < all.size(); ++taken_) {
      const cluster::v1::Directive& d = all[taken_];
      if (d.has_assign()) work_[d.assign().assignment_id()] = d.assign();
      if (d.has_unassign()) {
        work_.erase(d.unassign().assignment_id());
        ++unassigned_;
      }
      if (d.has_pause()) work_[d.pause().assignment_id()].set_paused(d.pause().paused());
      if (d.has_members()) {
        *work_[d.members().assignment_id()].mutable_members() = d.members();
      }
      if (d.has_evaluate()) evaluations_.push_back(d.evaluate());
    }
  }

  cluster::v1::RegisterRequest request_;
  WorkerHub* hub_ = nullptr;
  int64_t epoch_ = 0;
  int64_t sequence_ = 0;
  int64_t version_ = -1;
  size_t taken_ = 0;
  int unassigned_ = 0;
  std::shared_ptr<KeptDirectives> stream_;
  std::map<std::string, cluster::v1::Assign> work_;
  std::map<std::string, cluster::v1::AssignmentStatus> reports_;
  std::vector<cluster::v1::Evaluate> evaluations_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTROLLER_JOBS_DRIVER_CLUSTER_FAKES_H_
