#include "controller/status_page/status_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "job/job_state.h"
#include "job/proto_json.h"
#include "nlohmann/json.hpp"
#include "runlog/samples_log.h"
#include "runlog/step_metrics.h"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

// Bytes that are not UTF-8 are replaced: a body is always readable.
std::string Dump(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Json TimeToJson(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

// Fields shared by the list and the page of a job.
Json Summary(const job::v1::Job& job) {
  return ProtoToJson(job, {"id", "name", "state", "reason", "priority", "created", "started",
                           "finished", "step", "steps", "lineage", "reward_mean", "eval_accuracy"});
}

// A state or a notice; null for a row of metrics.
Json EventToJson(const job::v1::Event& event) {
  Json object = ProtoToJson(event, {"time"});
  if (event.has_state()) {
    object["kind"] = "state";
    object["severity"] = event.state().state() == job::v1::JOB_STATE_FAILED ? "error" : "info";
    object["text"] = StrCat(StateName(event.state().state()),
                            event.state().reason().empty() ? "" : ": ", event.state().reason());
    return object;
  }
  if (!event.has_notice()) return nullptr;
  object["kind"] = event.notice().kind();
  object["severity"] = event.notice().severity();
  object["text"] = event.notice().text();
  return object;
}

// A pool of rollouts, or a role.
struct Pool {
  int64_t ready = 0;
  int64_t total = 0;
  double busy = 0;  // sum over ready workers
  double tokens_per_second = 0;
  double kv = 0;  // of the fullest cache
  std::optional<int64_t> oldest_version;
  int64_t newest_version = 0;
  int64_t restarts = 0;
};

// Named like the keys of manual scaling.
std::string PoolName(const std::string& role, const std::string& pool) {
  return pool.empty() || pool == "default" ? role : StrCat(role, "/", pool);
}

// Autoscaling state of a rollout pool; null if it is not autoscaled.
const job::v1::PoolScale* ScaleOf(const job::v1::Cluster& cluster, const std::string& name) {
  for (const job::v1::PoolScale& scale : cluster.pools()) {
    if (scale.max() > 0 && PoolName("rollout", scale.pool()) == name) return &scale;
  }
  return nullptr;
}

std::map<std::string, Pool> PoolsOf(const job::v1::Cluster& cluster) {
  std::map<std::string, Pool> pools;
  for (const auto& [name, wanted] : cluster.wanted()) {
    if (wanted > 0) pools[name];
  }
  for (const job::v1::PoolScale& scale : cluster.pools()) {
    if (scale.max() > 0) pools[PoolName("rollout", scale.pool())];
  }
  for (const job::v1::Worker& worker : cluster.workers()) {
    Pool& pool = pools[PoolName(worker.role(), worker.pool())];
    ++pool.total;
    pool.restarts += worker.restarts();
    if (worker.state() != "ready") continue;
    ++pool.ready;
    pool.busy += worker.busy_ratio();
    pool.tokens_per_second += worker.tokens_per_second();
    pool.kv = std::max(pool.kv, worker.kv_cache_used_ratio());
    pool.oldest_version =
        std::min(pool.oldest_version.value_or(worker.version()), worker.version());
    pool.newest_version = std::max(pool.newest_version, worker.version());
  }
  return pools;
}

Json PoolsToJson(const job::v1::Cluster& cluster) {
  Json list = Json::array();
  for (const auto& [name, pool] : PoolsOf(cluster)) {
    const auto asked = cluster.wanted().find(name);
    Json wanted = asked == cluster.wanted().end() ? Json(nullptr) : Json(asked->second);
    Json reason = nullptr;
    if (const job::v1::PoolScale* const scale = ScaleOf(cluster, name)) {
      wanted = scale->wanted();
      reason = scale->text();
    }
    Json object = {
        {"name", name},
        {"ready", pool.ready},
        {"total", pool.total},
        {"wanted", wanted},
        {"wanted_reason", reason},
        {"busy_ratio", pool.ready > 0 ? pool.busy / static_cast<double>(pool.ready) : 0.0},
        {"tokens_per_second", pool.tokens_per_second},
        {"kv_cache_used_ratio", pool.kv},
        {"newest_version", pool.newest_version},
        {"oldest_version", pool.oldest_version.value_or(0)},
        {"restarts", pool.restarts}};
    list.push_back(std::move(object));
  }
  return list;
}

}  // namespace

std::string JobsToJson(const StatusIdentity& identity, const StatusJobs& jobs, absl::Time now) {
  Json list = Json::array();
  for (const job::v1::Job& job : jobs.jobs) list.push_back(Summary(job));
  Json body = Json::object();
  body["server"] = {{"role", identity.role},
                    {"version", identity.version},
                    {"leads", identity.leads},
                    {"leader", identity.leader},
                    {"now", TimeToJson(now)}};
  body["jobs"] = std::move(list);
  body["more"] = jobs.more;
  return Dump(body);
}

std::string JobToJson(const job::v1::Job& job, const std::string& yaml) {
  Json object = Summary(job);
  object["waits_for"] = job.waits_for();
  object["staleness_max"] = job.spec().staleness().max();
  object["staleness_policy"] = job.spec().staleness().policy();
  object["group_size"] = job.spec().group_size();
  object["prompts_per_step"] = job.spec().prompts_per_step();
  object.update(ProtoToJson(job, {"groups", "ended"}));
  Json dead = Json::array();
  for (const job::v1::DeadGroup& group : job.dead_groups()) {
    dead.push_back(ProtoToJson(group, {"time", "prompt", "attempt", "reason"}));
  }
  object["dead_groups"] = std::move(dead);
  Json events = Json::array();
  for (const job::v1::Event& event : job.recent_events()) {
    Json shown = EventToJson(event);
    if (!shown.is_null()) events.push_back(std::move(shown));
  }
  object["events"] = std::move(events);
  object["yaml"] = yaml;
  Json body = Json::object();
  body["job"] = std::move(object);
  return Dump(body);
}

std::string MetricsToJson(const StatusRows& rows) {
  std::vector<std::string> list;
  for (const std::string& text : rows.rows) {
    const absl::StatusOr<MetricsRow> row = ParseMetricsRow(text);
    if (!row.ok()) continue;
    if (const auto* step = std::get_if<StepMetrics>(&*row)) list.push_back(ToJson(*step));
    if (const auto* eval = std::get_if<EvalMetrics>(&*row)) list.push_back(ToJson(*eval));
  }
  const auto text = [](bool value) { return value ? "true" : "false"; };
  return StrCat("{\"rows\":[", absl::StrJoin(list, ","), "],\"cursor\":", rows.cursor,
                ",\"gap\":", text(rows.gap), ",\"more\":", text(rows.more), "}");
}

std::string SamplesToJson(const std::vector<std::string>& rows) {
  std::vector<std::string> list;
  for (const std::string& text : rows) {
    absl::StatusOr<SampleRow> row = ParseSampleRow(text);
    if (row.ok()) list.push_back(ToShortJson(*std::move(row)));
  }
  return StrCat("{\"samples\":[", absl::StrJoin(list, ","), "]}");
}

std::string WorkersToJson(const job::v1::Cluster& cluster) {
  Json workers = Json::array();
  for (const job::v1::Worker& worker : cluster.workers()) {
    workers.push_back(
        ProtoToJson(worker, {"name", "role", "pool", "state", "jobs", "busy_ratio",
                             "tokens_per_second", "kv_cache_used_ratio", "lineage", "version",
                             "waits_for", "last_seen", "restarts", "program_version"}));
  }
  Json body = Json::object();
  body["leader"] = cluster.leader();
  body["pools"] = PoolsToJson(cluster);
  body["workers"] = std::move(workers);
  body.update(ProtoToJson(cluster, {"wanted"}));
  return Dump(body);
}

std::string ErrorToJson(const absl::Status& status) {
  Json body = Json::object();
  body["error"] = {{"code", absl::StatusCodeToString(status.code())}, {"message", Message(status)}};
  return Dump(body);
}

}  // namespace freshet
