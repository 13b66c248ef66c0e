#include "controller/jobs/record/job_registry.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/record/deposed.h"

namespace freshet {
namespace {

constexpr char kPrefix[] = "job/";
constexpr int kMaxTries = 16;
constexpr size_t kDeletedKept = 1024;
// A generation has the leader's token in the high bits and a counter in the low bits. Exact as a
// Lua number up to token 2^29.
constexpr int kGenerationBits = 24;
// Older events are already in the log, whichever leader wrote them.
constexpr absl::Duration kReplayed = absl::Minutes(1);

std::string RecordId(const std::string& job) { return StrCat(kPrefix, job); }

absl::StatusOr<JobRecord> Parse(const StoredRecord& stored) {
  JobRecord record;
  if (!record.ParseFromString(stored.value)) {
    return DataLoss("record ", stored.id, " in the datastore cannot be read");
  }
  return record;
}

// Number at the end of a key such as "state/12".
int64_t EventNumber(const std::string& key) {
  const size_t slash = key.rfind('/');
  return slash == std::string::npos ? 0 : std::strtoll(key.c_str() + slash + 1, nullptr, 10);
}

}  // namespace

std::string EventStream(const std::string& job) { return StrCat("{", job, "}:events"); }
std::string SampleStream(const std::string& job) { return StrCat("{", job, "}:samples"); }

absl::StatusOr<JobRecord> JobRegistry::Get(const std::string& id) const {
  const absl::StatusOr<StoredRecord> stored = records_.Get(RecordId(id));
  if (stored.status().code() == absl::StatusCode::kNotFound) {
    return NotFound("there is no job ", id);
  }
  FRESHET_RETURN_IF_ERROR(stored.status());
  return Parse(*stored);
}

absl::StatusOr<std::vector<JobRecord>> JobRegistry::List() const {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<StoredRecord> stored, records_.List());
  std::vector<JobRecord> jobs;
  for (const StoredRecord& record : stored) {
    if (!record.id.starts_with(kPrefix)) continue;
    FRESHET_ASSIGN_OR_RETURN(JobRecord job, Parse(record));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

absl::Status JobRegistry::Create(JobRecord record, const std::function<bool()>& given_up) {
  {
    MutexLock lock(mu_);
    creating_.insert(record.id());
    record.set_store_generation((fence_ << kGenerationBits) + ++made_);
  }
  // Asked after the insertion: a caller that gives up later calls Change() later.
  const bool refused = given_up && given_up();
  absl::Status created;
  if (!refused) {
    created = records_.Create(RecordId(record.id()), record.SerializeAsString(), fence_).status();
  }
  {
    MutexLock lock(mu_);
    creating_.erase(creating_.find(record.id()));
    created_.NotifyAll();
  }
  if (refused) {
    return StatusOf(absl::StatusCode::kDeadlineExceeded, "job ", record.id(),
                    " is not created: the call's time is up");
  }
  if (created.code() == absl::StatusCode::kAlreadyExists) {
    return StatusOf(absl::StatusCode::kAlreadyExists, "there is a job ", record.id());
  }
  FRESHET_RETURN_IF_ERROR(DeposedIfFenced(created));
  {
    MutexLock lock(mu_);
    appended_[record.id()] = 0;
  }
  // The job exists now: if this append fails, its next change appends the event.
  AppendEvents(record).IgnoreError();
  return absl::OkStatus();
}

absl::Status JobRegistry::AwaitCreation(const std::string& id) {
  const absl::Time deadline = absl::Now() + longest_creation_;
  MutexLock lock(mu_);
  while (creating_.contains(id)) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return StatusOf(absl::StatusCode::kUnavailable, "job ", id,
                      " is still being created; try again");
    }
    created_.WaitFor(mu_, left);
  }
  return absl::OkStatus();
}

absl::StatusOr<JobRecord> JobRegistry::Change(
    const std::string& id, const std::function<absl::Status(JobRecord&)>& change) {
  FRESHET_RETURN_IF_ERROR(AwaitCreation(id));
  for (int attempt = 0; attempt < kMaxTries; ++attempt) {
    const absl::StatusOr<StoredRecord> stored = records_.Get(RecordId(id));
    if (stored.status().code() == absl::StatusCode::kNotFound) {
      return NotFound("there is no job ", id);
    }
    FRESHET_RETURN_IF_ERROR(stored.status());
    FRESHET_ASSIGN_OR_RETURN(JobRecord record, Parse(*stored));
    const bool had_ended = HasEnded(record.state());
    FRESHET_RETURN_IF_ERROR(change(record));
    const std::string value = record.SerializeAsString();
    if (value != stored->value) {
      const absl::Status written =
          records_.Update(stored->id, stored->revision, value, fence_).status();
      if (written.code() == absl::StatusCode::kAborted) continue;
      FRESHET_RETURN_IF_ERROR(DeposedIfFenced(written));
      if (on_end_ && !had_ended && HasEnded(record.state())) on_end_(record.state());
    }
    AppendEvents(record).IgnoreError();  // the next change retries
    return record;
  }
  return StatusOf(absl::StatusCode::kAborted, "the record of job ", id, " was changed by others ",
                  kMaxTries, " times in a row; try again");
}

absl::Status JobRegistry::Delete(
    const JobRecord& record, const std::function<absl::Status(const JobRemoval&)>& remove_rest) {
  MutexLock deletion(deletion_mu_);
  const absl::StatusOr<JobRecord> found = Get(record.id());
  if (found.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  FRESHET_RETURN_IF_ERROR(found.status());
  if (found->store_generation() != record.store_generation()) return absl::OkStatus();
  FRESHET_RETURN_IF_ERROR(remove_rest(Removal(record)));
  {
    // Before the record is deleted, as the datastore's reply may be lost.
    MutexLock lock(mu_);
    std::erase(deleted_, record.id());
    deleted_.push_back(record.id());
    if (deleted_.size() > kDeletedKept) deleted_.pop_front();
  }
  FRESHET_RETURN_IF_ERROR(records_.Delete(RecordId(record.id()), fence_));
  MutexLock lock(mu_);
  appended_.erase(record.id());
  return absl::OkStatus();
}

bool JobRegistry::HasDeleted(const std::string& id) const {
  MutexLock lock(mu_);
  return std::find(deleted_.begin(), deleted_.end(), id) != deleted_.end();
}

absl::Status JobRegistry::Replay(const JobRecord& record) { return AppendEvents(record); }

absl::Status JobRegistry::AppendEvents(const JobRecord& record) {
  int64_t upto = -1;
  {
    MutexLock lock(mu_);
    const auto known = appended_.find(record.id());
    if (known != appended_.end()) upto = known->second;
  }
  const bool all = upto >= 0;
  for (const cluster::v1::KeyedEvent& keyed : record.recent_events()) {
    if (!keyed.event().cursor().empty()) continue;  // from the stream
    const int64_t number = EventNumber(keyed.key());
    if (number <= upto) continue;
    const bool old = clock_.Now() - FromTimestamp(keyed.event().time()) > kReplayed;
    if (all || !old) {
      FRESHET_RETURN_IF_ERROR(
          events_.Append(EventStream(record.id()), keyed.key(), keyed.event().SerializeAsString())
              .status());
    }
    MutexLock lock(mu_);
    int64_t& appended = appended_[record.id()];
    appended = std::max(appended, number);
  }
  return absl::OkStatus();
}

absl::Status JobRegistry::AppendMetrics(const std::string& id, const std::string& key,
                                        const std::string& json) {
  job::v1::Event event;
  *event.mutable_time() = ToTimestamp(clock_.Now());
  event.set_metrics_json(json);
  return events_.Append(EventStream(id), key, event.SerializeAsString()).status();
}

}  // namespace freshet
