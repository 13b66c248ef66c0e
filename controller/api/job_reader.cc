#include "controller/api/job_reader.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/job_views.h"

namespace freshet {
namespace {

// Newest events of any kind that Get returns after the last states and notices.
constexpr int64_t kRecentTail = 8;
constexpr int32_t kDefaultSamples = 20;
constexpr int32_t kMaxSamples = 1000;

// The job without its events. `term` is the current one, null on a standby.
job::v1::Job Describe(const JobRecord& record, const ControllerTerm* term) {
  const auto driver = term != nullptr ? term->manager.Driver(record.id()) : nullptr;
  const JobLive live = driver != nullptr ? driver->Live() : JobLive();
  job::v1::Job job = ToDetailedJob(record, driver != nullptr ? &live : nullptr);
  if (term == nullptr || HasEnded(record.state())) return job;
  const std::optional<PoolStats> pool = term->pools.Find(PoolOf(record));
  if (pool.has_value()) *job.mutable_rollouts() = ToPoolScale(*pool);
  return job;
}

}  // namespace

absl::StatusOr<job::v1::ListReply> JobReader::List(const job::v1::ListRequest& request) const {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, controller_.registry().List());
  return ListJobs(records, request);
}

absl::StatusOr<StatusJobs> JobReader::ListByState(int limit) const {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, controller_.registry().List());
  return ListJobsByState(records, static_cast<size_t>(std::max(limit, 0)));
}

absl::StatusOr<job::v1::Job> JobReader::Get(const std::string& id) const {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, controller_.registry().Get(id));
  FRESHET_ASSIGN_OR_RETURN(const std::vector<StoredEvent> tail,
                           ReadTail(controller_.ports().events, EventStream(id), kRecentTail));
  job::v1::Job job = Describe(record, controller_.Active().get());
  FRESHET_RETURN_IF_ERROR(SetRecentEvents(record, tail, job));
  return job;
}

absl::StatusOr<job::v1::ListSamplesReply> JobReader::Samples(
    const job::v1::ListSamplesRequest& request) const {
  if (request.limit() < 0 || request.limit() > kMaxSamples) {
    return InvalidArgument("limit: ", request.limit(), " is not between 0 and ", kMaxSamples);
  }
  const int64_t limit = request.limit() == 0 ? kDefaultSamples : request.limit();
  FRESHET_RETURN_IF_ERROR(controller_.registry().Get(request.job_id()).status());
  EventLog& events = controller_.ports().events;
  const std::string stream = SampleStream(request.job_id());
  FRESHET_ASSIGN_OR_RETURN(const std::vector<StoredEvent> tail, ReadTail(events, stream, limit));
  job::v1::ListSamplesReply reply;
  for (auto event = tail.rbegin(); event != tail.rend(); ++event) {
    reply.add_samples_json(event->value);
  }
  return reply;
}

absl::StatusOr<StatusRows> JobReader::Metrics(const std::string& id, int64_t after,
                                              int64_t max) const {
  FRESHET_RETURN_IF_ERROR(controller_.registry().Get(id).status());
  FRESHET_ASSIGN_OR_RETURN(const EventPage page,
                           controller_.ports().events.Read(EventStream(id), after, max,
                                                           /*wait=*/absl::ZeroDuration()));
  StatusRows rows;
  rows.cursor = after;
  rows.gap = page.gap && after > 0;
  rows.more = static_cast<int64_t>(page.events.size()) >= max;
  for (const StoredEvent& stored : page.events) {
    FRESHET_ASSIGN_OR_RETURN(const job::v1::Event event, ToEvent(stored));
    if (event.has_metrics_json()) rows.rows.push_back(event.metrics_json());
    rows.cursor = stored.cursor;
  }
  return rows;
}

absl::StatusOr<job::v1::Cluster> JobReader::Cluster(ControllerTerm& term) const {
  job::v1::Cluster cluster;
  for (const Member& member : term.hub->Workers()) *cluster.add_workers() = ToWorker(member);
  cluster.set_leader(controller_.Leader().address);
  for (const auto& [key, replicas] : term.scaler.Wanted()) {
    (*cluster.mutable_wanted())[key] = replicas;
  }
  for (const PoolStats& pool : term.pools.Pools()) *cluster.add_pools() = ToPoolScale(pool);
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, term.registry.List());
  for (const JobRecord& record : records) {
    if (!HasEnded(record.state())) *cluster.add_jobs() = Describe(record, &term);
  }
  return cluster;
}

}  // namespace freshet
