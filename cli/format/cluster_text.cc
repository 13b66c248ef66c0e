#include "cli/format/cluster_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "cli/format/job_text.h"
#include "cli/format/paint.h"
#include "cli/format/text_table.h"

namespace freshet {
namespace {

using freshet::job::v1::Cluster;
using freshet::job::v1::Worker;

std::string PoolName(const Worker& worker) {
  if (worker.pool().empty() || worker.pool() == "default") return worker.role();
  return worker.role() + "/" + worker.pool();
}

std::string Percent(double ratio) { return absl::StrFormat("%.0f%%", 100 * ratio); }

std::string Share(double part, double whole) {
  return whole > 0 ? Percent(std::clamp(part / whole, 0.0, 1.0)) : "-";
}

struct Pool {
  int64_t ready = 0;
  int64_t total = 0;
  double busy = 0;
  double tokens_per_second = 0;
  double kv = 0;
  int64_t oldest_version = INT64_MAX;
  int64_t newest_version = 0;
  int64_t restarts = 0;
};

// Counts ready workers; a lost one shows up in READY/WANT.
std::map<std::string, Pool> PoolsOf(const Cluster& cluster) {
  std::map<std::string, Pool> pools;
  for (const auto& [name, wanted] : cluster.wanted()) {
    if (wanted > 0) pools[name];
  }
  for (const Worker& worker : cluster.workers()) {
    Pool& pool = pools[PoolName(worker)];
    ++pool.total;
    pool.restarts += worker.restarts();
    if (worker.state() != "ready") continue;
    ++pool.ready;
    pool.busy += worker.busy_ratio();
    pool.tokens_per_second += worker.tokens_per_second();
    pool.kv = std::max(pool.kv, worker.kv_cache_used_ratio());
    pool.oldest_version = std::min(pool.oldest_version, worker.version());
    pool.newest_version = std::max(pool.newest_version, worker.version());
  }
  return pools;
}

std::string PoolTable(const Cluster& cluster) {
  TextTable table({"POOL", "READY/WANT", "BUSY", "TOK/S", "KV", "VERSION", "LAG", "RESTARTS"});
  int64_t newest = 0;
  for (const Worker& worker : cluster.workers()) newest = std::max(newest, worker.version());
  for (const auto& [name, pool] : PoolsOf(cluster)) {
    const auto wanted = cluster.wanted().find(name);
    const int64_t want = wanted == cluster.wanted().end() ? pool.total : wanted->second;
    const bool rollout = name.starts_with("rollout");
    // Versions only apply to roles with weights.
    const bool weights = rollout || name == "trainer";
    table.AddRow({name, StrCat(pool.ready, "/", want),
                  pool.ready > 0 ? Percent(pool.busy / static_cast<double>(pool.ready)) : "",
                  weights && pool.ready > 0 ? HumanCount(pool.tokens_per_second) : "",
                  rollout && pool.ready > 0 ? Percent(pool.kv) : "",
                  weights && pool.ready > 0 ? StrCat(pool.newest_version) : "",
                  rollout && pool.ready > 0 ? StrCat(newest - pool.oldest_version) : "",
                  StrCat(pool.restarts)});
  }
  return table.Format();
}

std::string WorkerTable(const Cluster& cluster, absl::Time now) {
  TextTable table({"WORKER", "STATE", "SEEN", "BUSY", "TOK/S", "VERSION", "JOB", "WAITS FOR"});
  for (const Worker& worker : cluster.workers()) {
    const absl::Duration seen =
        std::max(now - FromTimestamp(worker.last_seen()), absl::ZeroDuration());
    const bool weights = worker.role() == "rollout" || worker.role() == "trainer";
    table.AddRow(
        {worker.name(), worker.state(),
         worker.last_seen().seconds() == 0 ? "" : HumanSeconds(absl::ToDoubleSeconds(seen)),
         Percent(worker.busy_ratio()), weights ? HumanCount(worker.tokens_per_second()) : "",
         weights ? StrCat(worker.version()) : "", absl::StrJoin(worker.jobs(), ","),
         OneLine(worker.waits_for())});
  }
  return table.Format();
}

std::string JobParagraph(const TopJob& top, const DisplayStyle& style) {
  const freshet::job::v1::Job& job = top.job;
  std::string text = StrCat(Paint(job.id(), kPaintBold, style.color), "  ", StateName(job.state()),
                            "  step ", job.step(), "/", job.steps());
  if (job.step() > 0) text += absl::StrFormat("  reward %.3f", job.reward_mean());
  if (top.last_step) text += absl::StrFormat(" ± %.3f", top.last_step->reward_std);
  if (job.has_eval_accuracy()) text += absl::StrFormat("  eval %.3f", job.eval_accuracy());
  text += "\n";
  if (top.last_step) {
    const StepMetrics& m = *top.last_step;
    text += StrCat("  staleness ", absl::StrFormat("%.3g", m.staleness_p50), "/", m.staleness_max,
                   " of ", job.spec().staleness().max(), "  dropped ", m.groups_dropped,
                   "  trainer wait ", Share(m.trainer_wait_seconds, m.step_seconds),
                   "  rollout idle ", HumanSeconds(m.rollout_idle_seconds), "  last sync ",
                   HumanSeconds(m.weight_swap_seconds), "\n");
  }
  const std::string groups = FormatGroups(job.groups());
  if (!groups.empty()) text += "  " + groups + "\n";
  if (!job.waits_for().empty()) {
    text += "  " + Paint("waits for " + OneLine(job.waits_for()), kPaintYellow, style.color) + "\n";
  }
  return text;
}

// Cuts every line to the width and resets colors on cut lines.
std::string CutLines(const std::string& text, int width) {
  std::string result;
  int column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      result += '\n';
      column = 0;
    } else if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') result += text[i++];
      if (i < text.size()) result += 'm';
    } else {
      if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) ++column;
      if (column <= width) result += text[i];
    }
  }
  return result;
}

}  // namespace

std::optional<StepMetrics> LastStep(const freshet::job::v1::Job& job) {
  for (int i = job.recent_events_size() - 1; i >= 0; --i) {
    const freshet::job::v1::Event& event = job.recent_events(i);
    if (!event.has_metrics_json()) continue;
    const absl::StatusOr<MetricsRow> row = ParseMetricsRow(event.metrics_json());
    if (row.ok() && std::holds_alternative<StepMetrics>(*row)) return std::get<StepMetrics>(*row);
  }
  return std::nullopt;
}

std::string FormatTop(const Cluster& cluster, const std::vector<TopJob>& jobs, absl::Time now,
                      const DisplayStyle& style) {
  std::string text =
      StrCat("freshet  ", absl::FormatTime("%H:%M:%S", now, absl::LocalTimeZone()), "  ",
             cluster.workers_size(), " workers  ", cluster.jobs_size(), " jobs",
             cluster.leader().empty() ? "" : "  controller ", cluster.leader(), "\n\n");
  for (const TopJob& job : jobs) text += JobParagraph(job, style);
  if (jobs.empty()) text += "no job; next: freshet submit JOB.yaml\n";
  text += "\n" + PoolTable(cluster);
  if (cluster.workers_size() > 0) text += "\n" + WorkerTable(cluster, now);
  return CutLines(text, std::max(20, style.width));
}

}  // namespace freshet
