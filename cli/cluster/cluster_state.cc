#include "cli/cluster/cluster_state.h"

#include <algorithm>

#include "base/str_cat.h"
#include "cli/format/text_table.h"
#include "nlohmann/json.hpp"
#include "runlog/display_format.h"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

constexpr Phase kPhases[] = {Phase::kStarting, Phase::kReady, Phase::kDraining, Phase::kBackoff};

Json StampToJson(const ProcessStamp& stamp) {
  return {{"pid", stamp.pid}, {"start_ticks", stamp.start_ticks}};
}

ProcessStamp StampOf(const Json& json) {
  return {json.at("pid").get<int64_t>(), json.at("start_ticks").get<int64_t>()};
}

Json RecordToJson(const ProcessRecord& record) {
  return {{"name", record.id.Name()},
          {"role", record.id.role},
          {"pool", record.id.pool},
          {"index", record.id.index},
          {"state", PhaseName(record.phase)},
          {"process", StampToJson(record.stamp)},
          {"started", absl::ToUnixMillis(record.started)},
          {"grpc", record.grpc},
          {"http", record.http},
          {"status", record.status},
          {"api", record.api},
          {"restarts", record.restarts},
          {"last_end", record.last_end}};
}

ProcessRecord RecordOf(const Json& json) {
  ProcessRecord record;
  record.id = {json.at("role").get<std::string>(), json.at("pool").get<std::string>(),
               json.at("index").get<int>()};
  const auto state = json.at("state").get<std::string>();
  for (const Phase phase : kPhases) {
    if (state == PhaseName(phase)) record.phase = phase;
  }
  record.stamp = StampOf(json.at("process"));
  record.started = absl::FromUnixMillis(json.at("started").get<int64_t>());
  record.grpc = json.at("grpc").get<std::string>();
  record.http = json.at("http").get<std::string>();
  record.status = json.value("status", std::string());
  record.api = json.value("api", std::string());
  record.restarts = json.at("restarts").get<int>();
  record.last_end = json.at("last_end").get<std::string>();
  return record;
}

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kReady:
      return "ready";
    case Phase::kDraining:
      return "draining";
    case Phase::kBackoff:
      return "died";
  }
  return "unknown";
}

std::string StateToJson(const ClusterState& state) {
  Json processes = Json::array();
  for (const ProcessRecord& record : state.processes) processes.push_back(RecordToJson(record));
  const Json json = {{"name", state.name},
                     {"supervisor", StampToJson(state.supervisor)},
                     {"started", absl::ToUnixMillis(state.started)},
                     {"ready", state.ready},
                     {"stopping", state.stopping},
                     {"controller", state.controller},
                     {"redis_port", state.redis_port},
                     {"wanted", state.wanted},
                     {"processes", processes}};
  return json.dump(2) + "\n";
}

absl::StatusOr<ClusterState> ParseState(std::string_view text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    ClusterState state;
    state.name = json.at("name").get<std::string>();
    state.supervisor = StampOf(json.at("supervisor"));
    state.started = absl::FromUnixMillis(json.at("started").get<int64_t>());
    state.ready = json.at("ready").get<bool>();
    state.stopping = json.at("stopping").get<bool>();
    state.controller = json.at("controller").get<std::string>();
    state.redis_port = json.at("redis_port").get<int>();
    state.wanted = json.at("wanted").get<std::map<std::string, int>>();
    for (const Json& process : json.at("processes")) state.processes.push_back(RecordOf(process));
    return state;
  } catch (const Json::exception& error) {
    return InvalidArgument(source, ": cannot be read: ", error.what());
  }
}

std::string StatusPage(const ClusterState& state) {
  for (const ProcessRecord& record : state.processes) {
    if (record.phase == Phase::kReady && !record.status.empty()) {
      return StrCat("http://", record.status, "/");
    }
  }
  return "";
}

std::string FormatState(const ClusterState& state, const std::map<std::string, std::string>& health,
                        absl::Time now) {
  TextTable table({"NAME", "STATE", "HEALTH", "PID", "GRPC", "HTTP", "RESTARTS", "UP"});
  for (const ProcessRecord& record : state.processes) {
    const bool runs = record.stamp.pid > 0;
    std::string address = record.grpc;
    if (record.id.role == "redis") address = StrCat("127.0.0.1:", state.redis_port, " (redis)");
    if (!record.api.empty()) address = record.api;
    const auto said = health.find(record.id.Name());
    std::string phase = PhaseName(record.phase);
    if (record.phase == Phase::kBackoff) phase += " (" + record.last_end + ")";
    table.AddRow(
        {record.id.Name(), phase, said == health.end() ? "" : said->second,
         runs ? StrCat(record.stamp.pid) : "", address, record.http, StrCat(record.restarts),
         runs ? HumanSeconds(
                    absl::ToDoubleSeconds(std::max(now - record.started, absl::ZeroDuration())))
              : ""});
  }
  return table.Format();
}

}  // namespace freshet
