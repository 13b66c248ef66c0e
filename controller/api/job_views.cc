#include "controller/api/job_views.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

constexpr int32_t kDefaultPage = 50;
constexpr int32_t kMaxPage = 500;

// Sorts newest first, with the id as tie-breaker.
std::pair<int64_t, std::string> SortKey(const JobRecord& record) {
  return {-absl::ToUnixMicros(FromTimestamp(record.created())), record.id()};
}

std::string ToToken(const std::pair<int64_t, std::string>& key) {
  return StrCat(key.first, "/", key.second);
}

absl::StatusOr<std::pair<int64_t, std::string>> ParseToken(const std::string& token) {
  std::pair<int64_t, std::string> key;
  const char* end = token.data() + token.size();
  const auto [rest, error] = std::from_chars(token.data(), end, key.first);
  if (error != std::errc() || rest == end || *rest != '/') {
    return InvalidArgument("page_token: not issued by this service");
  }
  key.second.assign(rest + 1, end);
  return key;
}

int StateRank(const JobRecord& record) {
  if (HasEnded(record.state())) return 2;
  return record.state() == job::v1::JOB_STATE_PENDING ? 1 : 0;
}

// Drops the oldest events until at most `count` events and kMaxTailBytes remain. Always keeps the
// newest.
void KeepNewest(std::vector<StoredEvent>& events, int64_t count) {
  size_t bytes = 0;
  auto first = events.end();
  while (first != events.begin() && events.end() - first < count) {
    bytes += (first - 1)->value.size();
    if (bytes > kMaxTailBytes && first != events.end()) break;
    --first;
  }
  events.erase(events.begin(), first);
}

// Extracts what a job waits for from its reason: "submitted; waits for its turn" -> "its turn".
std::string WaitedFor(const std::string& reason) {
  constexpr std::string_view kWords = "waits for ";
  const size_t at = reason.find(kWords);
  return at == std::string::npos ? reason : reason.substr(at + kWords.size());
}

}  // namespace

std::string WorkerState(const Member& member) {
  if (member.record.lost()) return "lost";
  if (member.status.draining()) return "draining";
  return member.connected ? "ready" : "joining";
}

job::v1::Worker ToWorker(const Member& member) {
  const cluster::v1::WorkerRecord& record = member.record;
  const cluster::v1::WorkerStatus& status = member.status;
  job::v1::Worker worker;
  worker.set_name(record.name());
  worker.set_role(RoleName(record.role()));
  worker.set_pool(record.pool());
  worker.set_address(record.address());
  worker.set_http_address(record.http_address());
  worker.set_epoch(record.epoch());
  worker.set_state(WorkerState(member));
  std::set<std::string> jobs;
  for (const cluster::v1::AssignmentStatus& assignment : status.assignments()) {
    jobs.insert(JobOfAssignment(assignment.assignment_id()));
    if (assignment.has_policy() && assignment.policy().version() >= worker.version()) {
      worker.set_lineage(assignment.policy().lineage());
      worker.set_version(assignment.policy().version());
    }
    if (worker.waits_for().empty()) worker.set_waits_for(assignment.waits_for());
    if (!assignment.error().empty()) worker.set_waits_for(assignment.error());
  }
  for (const std::string& job : jobs) worker.add_jobs(job);
  if (record.lost()) worker.set_waits_for(record.lost_reason());
  worker.set_busy_ratio(status.busy_ratio());
  worker.set_tokens_per_second(status.tokens_per_second());
  worker.set_kv_cache_used_ratio(status.kv_cache_used_ratio());
  *worker.mutable_last_seen() = ToTimestamp(member.last_seen);
  worker.set_restarts(record.restarts());
  worker.set_program_version(record.version());
  return worker;
}

job::v1::PoolScale ToPoolScale(const PoolStats& stats) {
  job::v1::PoolScale scale;
  scale.set_pool(stats.pool);
  scale.set_ready(stats.ready);
  scale.set_wanted(stats.wanted);
  scale.set_reason(Name(stats.reason));
  scale.set_text(stats.text);
  if (stats.bounds.has_value()) {
    scale.set_min(stats.bounds->min);
    scale.set_max(stats.bounds->max);
  }
  return scale;
}

std::string PoolOf(const JobRecord& record) {
  if (!record.pool().empty()) return record.pool();
  return record.spec().pool().empty() ? "default" : record.spec().pool();
}

job::v1::Job ToDetailedJob(const JobRecord& record, const JobLive* live) {
  job::v1::Job job = ToJob(record, /*details=*/true);
  if (HasEnded(record.state())) job.MergeFrom(record.counts_at_end());
  if (live == nullptr) {
    if (!HasEnded(record.state())) job.set_waits_for(WaitedFor(record.reason()));
    return job;
  }
  job.set_waits_for(live->waits_for.empty() ? WaitedFor(record.reason()) : live->waits_for);
  if (!HasEnded(record.state())) SetCounts(*live, job);
  job.mutable_ranks()->Assign(live->ranks.begin(), live->ranks.end());
  return job;
}

absl::StatusOr<job::v1::ListReply> ListJobs(const std::vector<JobRecord>& records,
                                            const job::v1::ListRequest& request) {
  if (request.page_size() < 0 || request.page_size() > kMaxPage) {
    return InvalidArgument("page_size: ", request.page_size(), " is not between 0 and ", kMaxPage);
  }
  const size_t size =
      static_cast<size_t>(request.page_size() == 0 ? kDefaultPage : request.page_size());
  std::vector<const JobRecord*> matching;
  for (const JobRecord& record : records) {
    const auto& states = request.states();
    const bool state_fits =
        states.empty() || std::find(states.begin(), states.end(), record.state()) != states.end();
    if (state_fits && record.spec().name().starts_with(request.name_prefix())) {
      matching.push_back(&record);
    }
  }
  std::sort(matching.begin(), matching.end(),
            [](const JobRecord* a, const JobRecord* b) { return SortKey(*a) < SortKey(*b); });
  auto begin = matching.begin();
  if (!request.page_token().empty()) {
    FRESHET_ASSIGN_OR_RETURN(const auto last, ParseToken(request.page_token()));
    begin = std::find_if(matching.begin(), matching.end(),
                         [&last](const JobRecord* record) { return SortKey(*record) > last; });
  }
  job::v1::ListReply reply;
  for (; begin != matching.end(); ++begin) {
    if (static_cast<size_t>(reply.jobs_size()) == size) {
      reply.set_next_page_token(ToToken(SortKey(**(begin - 1))));
      break;
    }
    *reply.add_jobs() = ToJob(**begin, /*details=*/false);
  }
  return reply;
}

StatusJobs ListJobsByState(const std::vector<JobRecord>& records, size_t limit) {
  std::vector<const JobRecord*> order;
  order.reserve(records.size());
  for (const JobRecord& record : records) order.push_back(&record);
  std::sort(order.begin(), order.end(), [](const JobRecord* a, const JobRecord* b) {
    return std::pair(StateRank(*a), SortKey(*a)) < std::pair(StateRank(*b), SortKey(*b));
  });
  StatusJobs list;
  list.more = order.size() > limit;
  if (list.more) order.resize(limit);
  for (const JobRecord* record : order) list.jobs.push_back(ToJob(*record, /*details=*/false));
  return list;
}

absl::StatusOr<job::v1::Event> ToEvent(const StoredEvent& stored) {
  job::v1::Event event;
  if (!event.ParseFromString(stored.value)) {
    return DataLoss("event ", stored.cursor, " in the datastore cannot be read");
  }
  event.set_cursor(StrCat(stored.cursor));
  return event;
}

absl::StatusOr<std::vector<StoredEvent>> ReadTail(EventLog& events, const std::string& stream,
                                                  int64_t count) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t newest, events.Newest(stream));
  std::vector<StoredEvent> tail;
  // A page may end early because of its size limit.
  for (int64_t cursor = std::max<int64_t>(0, newest - count); cursor < newest;
       cursor = tail.back().cursor) {
    FRESHET_ASSIGN_OR_RETURN(EventPage page,
                             events.Read(stream, cursor, count, absl::ZeroDuration()));
    if (page.events.empty()) break;
    tail.insert(tail.end(), std::make_move_iterator(page.events.begin()),
                std::make_move_iterator(page.events.end()));
    KeepNewest(tail, count);
  }
  return tail;
}

absl::Status SetRecentEvents(const JobRecord& record, const std::vector<StoredEvent>& tail,
                             job::v1::Job& job) {
  job.clear_recent_events();
  const auto in_tail = [&tail](const std::string& key) {
    return std::any_of(tail.begin(), tail.end(),
                       [&key](const StoredEvent& stored) { return stored.key == key; });
  };
  for (const cluster::v1::KeyedEvent& keyed : record.recent_events()) {
    if (!in_tail(keyed.key())) *job.add_recent_events() = keyed.event();
  }
  for (const StoredEvent& stored : tail) {
    FRESHET_ASSIGN_OR_RETURN(*job.add_recent_events(), ToEvent(stored));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ParseCursor(const std::string& cursor) {
  if (cursor.empty()) return 0;
  int64_t value = 0;
  const char* end = cursor.data() + cursor.size();
  const auto [rest, error] = std::from_chars(cursor.data(), end, value);
  if (error != std::errc() || rest != end || value < 0) {
    return InvalidArgument("cursor: not issued by this service");
  }
  return value;
}

}  // namespace freshet
