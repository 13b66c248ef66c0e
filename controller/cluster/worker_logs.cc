#include "controller/cluster/worker_logs.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "base/log_line.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "controller/jobs/record/job_record.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

// Bound in case lines arrive as fast as they are taken.
constexpr int kMaxTakes = 64;

std::vector<std::string> JobsOf(const cluster::v1::WorkerStatus& status) {
  std::set<std::string> jobs;
  for (const auto& assignment : status.assignments()) {
    jobs.insert(JobOfAssignment(assignment.assignment_id()));
  }
  return {jobs.begin(), jobs.end()};
}

// The IDs of all words job=ID outside quotes.
std::vector<std::string> JobsNamedIn(std::string_view text) {
  std::vector<std::string> jobs;
  for (const auto& [key, value] : ParseLogText(text)) {
    if (key == "job") jobs.push_back(value.substr(0, value.find(' ')));
  }
  return jobs;
}

}  // namespace

void WorkerLogs::Append(std::vector<std::string> jobs, job::v1::LogEntry entry) {
  if (!rings_.contains(entry.worker()) && rings_.size() >= options_.max_workers) {
    const auto oldest =
        std::min_element(rings_.begin(), rings_.end(), [](const auto& a, const auto& b) {
          return a.second.back().number < b.second.back().number;
        });
    rings_.erase(oldest);
  }
  entry.set_text(ValidUtf8(entry.text(), options_.max_line_bytes));
  std::deque<Line>& ring = rings_[entry.worker()];
  ring.push_back({++last_, std::move(jobs), std::move(entry)});
  if (ring.size() > options_.lines_per_worker) ring.pop_front();
}

void WorkerLogs::Add(cluster::v1::Role role, const cluster::v1::WorkerStatus& status) {
  if (status.log_size() == 0 && status.log_lines_lost() == 0) return;
  const std::vector<std::string> jobs = JobsOf(status);
  MutexLock lock(mu_);
  const auto append = [&](job::v1::LogEntry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    entry.set_role(RoleName(role));
    entry.set_worker(status.worker());
    Append(jobs, std::move(entry));
  };
  if (status.log_lines_lost() > 0) {
    job::v1::LogEntry entry;
    if (status.log_size() > 0) *entry.mutable_time() = status.log(0).time();
    entry.set_level("warning");
    entry.set_text(StrCat(status.log_lines_lost(), " lines were lost before this one"));
    append(std::move(entry));
  }
  for (const cluster::v1::LogLine& line : status.log()) {
    job::v1::LogEntry entry;
    *entry.mutable_time() = line.time();
    entry.set_level(line.level());
    entry.set_text(line.text());
    append(std::move(entry));
  }
  added_.NotifyAll();
}

void WorkerLogs::AddOwn(std::vector<job::v1::LogEntry> entries) {
  if (entries.empty()) return;
  MutexLock lock(mu_);
  for (job::v1::LogEntry& entry : entries) {
    std::vector<std::string> jobs = JobsNamedIn(entry.text());
    Append(std::move(jobs), std::move(entry));
  }
  added_.NotifyAll();
}

void WorkerLogs::TakeOwn(const OwnLog& own) {
  if (!own) return;
  MutexLock lock(own_mu_);
  for (int take = 0; take < kMaxTakes; ++take) {
    std::vector<job::v1::LogEntry> entries = own();
    if (entries.empty()) return;
    AddOwn(std::move(entries));
  }
}

LogPage WorkerLogs::Collect(const LogFilter& filter, int64_t position) const {
  std::vector<const Line*> lines;
  for (const auto& [worker, ring] : rings_) {
    if (!filter.worker.empty() && worker != filter.worker) continue;
    for (const Line& line : ring) {
      if (line.number <= position) continue;
      if (!filter.role.empty() && line.entry.role() != filter.role) continue;
      if (!filter.job.empty() &&
          std::find(line.jobs.begin(), line.jobs.end(), filter.job) == line.jobs.end()) {
        continue;
      }
      lines.push_back(&line);
    }
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line* a, const Line* b) { return a->number < b->number; });
  LogPage page;
  page.position = last_;
  for (const Line* line : lines) page.entries.push_back(line->entry);
  return page;
}

LogPage WorkerLogs::Tail(const LogFilter& filter, size_t tail) const {
  MutexLock lock(mu_);
  LogPage page = Collect(filter, 0);
  if (tail > 0 && page.entries.size() > tail) {
    page.entries.erase(page.entries.begin(), page.entries.end() - static_cast<ptrdiff_t>(tail));
  }
  return page;
}

LogPage WorkerLogs::Next(const LogFilter& filter, int64_t position, absl::Duration wait) {
  const absl::Time deadline = absl::Now() + wait;
  MutexLock lock(mu_);
  while (true) {
    LogPage page = Collect(filter, position);
    const absl::Duration left = deadline - absl::Now();
    if (!page.entries.empty() || closed_ || left <= absl::ZeroDuration()) return page;
    position = page.position;
    added_.WaitFor(mu_, left);
  }
}

void WorkerLogs::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  added_.NotifyAll();
}

}  // namespace freshet
