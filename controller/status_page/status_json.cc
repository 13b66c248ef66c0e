#include "controller/status_page/status_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/str_cat.h"
#include "datastore/event_log.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStepKeys[] = {"step",
                                     "policy_version",
                                     "lineage",
                                     "reward_mean",
                                     "reward_std",
                                     "reward_components",
                                     "loss",
                                     "grad_norm",
                                     "entropy",
                                     "kl_behavior",
                                     "ratio_clip_fraction",
                                     "staleness_mean",
                                     "staleness_p50",
                                     "staleness_max",
                                     "staleness_tokens",
                                     "completion_length_mean",
                                     "tokens_generated",
                                     "tokens_trained",
                                     "groups_dropped",
                                     "groups_filtered",
                                     "trainer_wait_seconds",
                                     "rollout_idle_seconds",
                                     "weight_swap_seconds",
                                     "train_seconds",
                                     "step_seconds",
                                     "wall_seconds"};
constexpr const char* kEvalKeys[] = {"eval_name", "eval_accuracy", "policy_version",
                                     "lineage",   "rows",          "wall_seconds"};
constexpr const char* kSampleKeys[] = {"step",      "policy_version", "lineage", "uid",
                                       "prompt",    "completion",     "reward",  "components",
                                       "advantage", "tokens",         "spans",   "finish"};

// Replaces invalid UTF-8, so that a body is always valid.
std::string Dump(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Null if the row is longer than an event or not JSON. Values nested too deeply are dropped.
Json Parse(const std::string& text) {
  constexpr int kMaxDepth = 8;
  if (text.size() > size_t{kMaxEventBytes}) return nullptr;
  Json row = Json::parse(
      text, [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; },
      /*allow_exceptions=*/false);
  return row.is_discarded() ? Json(nullptr) : row;
}

Json TimeToJson(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

Json TimeToJson(bool present, const google::protobuf::Timestamp& time) {
  if (!present || (time.seconds() == 0 && time.nanos() == 0)) return nullptr;
  return TimeToJson(absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()));
}

// "JOB_STATE_RUNNING" -> "RUNNING".
std::string StateText(job::v1::JobState state) {
  constexpr std::string_view kPrefix = "JOB_STATE_";
  const std::string& name = job::v1::JobState_Name(state);
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

template <typename Map>
Json CountsToJson(const Map& counts) {
  const std::map<std::string, int64_t> sorted(counts.begin(), counts.end());
  Json object = Json::object();
  for (const auto& [name, count] : sorted) object[name] = count;
  return object;
}

// Fields shared by the list and the page of a job.
Json Summary(const job::v1::Job& job) {
  Json object = {{"id", job.id()},
                 {"name", job.name()},
                 {"state", StateText(job.state())},
                 {"reason", job.reason()},
                 {"priority", job.priority()},
                 {"created", TimeToJson(job.has_created(), job.created())},
                 {"started", TimeToJson(job.has_started(), job.started())},
                 {"finished", TimeToJson(job.has_finished(), job.finished())},
                 {"step", job.step()},
                 {"steps", job.steps()},
                 {"lineage", job.lineage()},
                 {"reward_mean", job.reward_mean()},
                 {"eval_accuracy", nullptr}};
  if (job.has_eval_accuracy()) object["eval_accuracy"] = job.eval_accuracy();
  return object;
}

// A state or a notice; null for a row of metrics.
Json EventToJson(const job::v1::Event& event) {
  Json object = {{"time", TimeToJson(event.has_time(), event.time())}};
  if (event.has_state()) {
    object["kind"] = "state";
    object["severity"] = event.state().state() == job::v1::JOB_STATE_FAILED ? "error" : "info";
    object["text"] = StrCat(StateText(event.state().state()),
                            event.state().reason().empty() ? "" : ": ", event.state().reason());
    return object;
  }
  if (!event.has_notice()) return nullptr;
  object["kind"] = event.notice().kind();
  object["severity"] = event.notice().severity();
  object["text"] = event.notice().text();
  return object;
}

template <size_t N>
Json Project(const Json& row, const char* const (&keys)[N]) {
  Json object = Json::object();
  for (const char* key : keys) {
    if (const auto found = row.find(key); found != row.end()) object[key] = *found;
  }
  return object;
}

// Truncates `text` to at most kMaxSampleText bytes at a character boundary.
bool Cut(std::string& text) {
  if (text.size() <= kMaxSampleText) return false;
  size_t end = kMaxSampleText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  text.resize(end);
  return true;
}

// A rollout pool, or a role.
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

Json WorkerToJson(const job::v1::Worker& worker) {
  return {{"name", worker.name()},
          {"role", worker.role()},
          {"pool", worker.pool()},
          {"state", worker.state()},
          {"jobs", std::vector<std::string>(worker.jobs().begin(), worker.jobs().end())},
          {"busy_ratio", worker.busy_ratio()},
          {"tokens_per_second", worker.tokens_per_second()},
          {"kv_cache_used_ratio", worker.kv_cache_used_ratio()},
          {"lineage", worker.lineage()},
          {"version", worker.version()},
          {"waits_for", worker.waits_for()},
          {"last_seen", TimeToJson(worker.has_last_seen(), worker.last_seen())},
          {"restarts", worker.restarts()},
          {"program_version", worker.program_version()}};
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
  object["groups"] = CountsToJson(job.groups());
  object["ended"] = CountsToJson(job.ended());
  Json dead = Json::array();
  for (const job::v1::DeadGroup& group : job.dead_groups()) {
    Json shown = {{"time", TimeToJson(group.has_time(), group.time())},
                  {"prompt", group.prompt()},
                  {"attempt", group.attempt()},
                  {"reason", group.reason()}};
    dead.push_back(std::move(shown));
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
  Json list = Json::array();
  for (const std::string& text : rows.rows) {
    const Json row = Parse(text);
    if (!row.is_object()) continue;
    if (row.contains("step")) {
      list.push_back(Project(row, kStepKeys));
    } else if (row.contains("eval_name")) {
      list.push_back(Project(row, kEvalKeys));
    }
  }
  Json body = Json::object();
  body["rows"] = std::move(list);
  body["cursor"] = rows.cursor;
  body["gap"] = rows.gap;
  body["more"] = rows.more;
  return Dump(body);
}

std::string SamplesToJson(const std::vector<std::string>& rows) {
  Json list = Json::array();
  for (const std::string& text : rows) {
    const Json row = Parse(text);
    if (!row.is_object()) continue;
    Json sample = Project(row, kSampleKeys);
    bool truncated = false;
    for (const char* key : {"prompt", "completion"}) {
      const auto found = sample.find(key);
      if (found == sample.end() || !found->is_string()) continue;
      truncated |= Cut(found->get_ref<std::string&>());
    }
    sample["truncated"] = truncated;
    list.push_back(std::move(sample));
  }
  Json body = Json::object();
  body["samples"] = std::move(list);
  return Dump(body);
}

std::string WorkersToJson(const job::v1::Cluster& cluster) {
  Json workers = Json::array();
  for (const job::v1::Worker& worker : cluster.workers()) workers.push_back(WorkerToJson(worker));
  Json body = Json::object();
  body["leader"] = cluster.leader();
  body["pools"] = PoolsToJson(cluster);
  body["workers"] = std::move(workers);
  body["wanted"] = CountsToJson(cluster.wanted());
  return Dump(body);
}

std::string ErrorToJson(const absl::Status& status) {
  Json body = Json::object();
  body["error"] = {{"code", absl::StatusCodeToString(status.code())}, {"message", Message(status)}};
  return Dump(body);
}

}  // namespace freshet
