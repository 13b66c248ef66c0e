#include "cli/cluster/supervisor.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "base/str_cat.h"

namespace freshet {
namespace {

// A process that exits with 0 without being told to was drained by the controller. The wanted
// number follows within a second, and then it is not restarted.
constexpr absl::Duration kAfterDrain = absl::Seconds(2);

}  // namespace

Supervisor::Supervisor(ClusterLayout layout, ProcessHost& host, const Clock& clock, Report report,
                       const PlanLimits& limits)
    : layout_(std::move(layout)),
      host_(host),
      clock_(clock),
      report_(std::move(report)),
      limits_(limits),
      wanted_(layout_.wanted) {}

void Supervisor::SetWanted(const std::map<std::string, int>& wanted) {
  for (const auto& [group, count] : wanted) {
    const auto known = wanted_.find(group);
    if (known != wanted_.end() && known->second == count) continue;
    report_(
        StrCat(group, ": ", known == wanted_.end() ? 0 : known->second, " -> ", count, " wanted"));
    wanted_[group] = count;
  }
}

void Supervisor::Stop() {
  if (stopping_) return;
  stopping_ = true;
  ++revision_;
  report_("stopping");
}

void Supervisor::Tick(absl::Duration timeout) {
  for (const ProcessEvent& event : host_.Wait(timeout)) Handle(event);
  PlanInput input;
  for (const auto& [id, process] : processes_) input.processes.push_back(process.view);
  input.wanted = wanted_;
  input.stopping = stopping_;
  input.now = clock_.Now();
  input.limits = limits_;
  for (const Action& action : PlanCluster(input)) Act(action);
}

void Supervisor::SetPhase(Process& process, Phase phase) {
  process.view.phase = phase;
  process.view.since = clock_.Now();
  process.record.phase = phase;
  ++revision_;
}

void Supervisor::Handle(const ProcessEvent& event) {
  const auto found = processes_.find(event.id);
  if (found == processes_.end()) return;
  Process& process = found->second;
  if (event.kind == ProcessEvent::Kind::kExited) {
    HandleExit(process, event);
    return;
  }
  if (process.view.phase != Phase::kStarting) return;
  const std::optional<ReadyLine> ready = ParseReadyLine(event.id, event.line);
  if (!ready) return;
  process.record.grpc = ready->grpc;
  process.record.http = ready->http;
  process.record.status = ready->status;
  process.record.api = ready->api;
  SetPhase(process, Phase::kReady);
  report_(StrCat(event.id.Name(), " is ready",
                 ready->grpc.empty() ? "" : StrCat(": grpc ", ready->grpc),
                 ready->api.empty() ? "" : StrCat(": ", ready->api),
                 ready->http.empty() ? "" : StrCat(", http ", ready->http)));
}

void Supervisor::HandleExit(Process& process, const ProcessEvent& event) {
  const std::string how =
      event.signal != 0 ? StrCat("signal ", event.signal) : StrCat("exit code ", event.exit_code);
  if (process.view.phase == Phase::kDraining) {
    report_(StrCat(event.id.Name(), " has ended: ", how));
    processes_.erase(event.id);
    ++revision_;
    return;
  }
  const bool drained = event.signal == 0 && event.exit_code == 0;
  Fail(process, how, drained ? kAfterDrain : absl::ZeroDuration());
}

void Supervisor::Fail(Process& process, const std::string& why, absl::Duration at_least) {
  const int port = process.view.phase == Phase::kReady ? 0 : PortOf(layout_, process.record.id);
  const bool stable =
      process.view.phase == Phase::kReady && clock_.Now() - process.view.since >= kStableAfter;
  process.failures = stable ? 1 : process.failures + 1;
  process.record.last_end = why;
  process.record.stamp = {};
  process.view.killed = false;
  SetPhase(process, Phase::kBackoff);
  const absl::Duration delay = std::max(RestartDelay(process.failures), at_least);
  process.view.retry_at = clock_.Now() + delay;
  const bool drained = at_least > absl::ZeroDuration();
  report_(StrCat(process.record.id.Name(), drained ? " has drained: " : " has died: ", why,
                 "; starts again in ", absl::FormatDuration(delay),
                 drained ? " if it is still wanted" : "",
                 port > 0 ? StrCat("; see its log. If another program uses 127.0.0.1:", port,
                                   ", run freshet cluster down, then freshet cluster up",
                                   process.record.id.role == "controller" ? " --port 0" : "")
                          : ""));
}

void Supervisor::Start(const ProcessId& id) {
  Process& process = processes_[id];
  if (process.record.started != absl::InfinitePast()) ++process.record.restarts;
  process.record.id = id;
  process.view.id = id;
  process.view.killed = false;
  process.record.started = clock_.Now();
  const absl::StatusOr<std::vector<std::string>> argv = CommandOf(layout_, id);
  const absl::StatusOr<ProcessStamp> stamp = argv.ok() ? host_.Start(id, *argv) : argv.status();
  if (!stamp.ok()) {
    Fail(process, Message(stamp.status()));
    return;
  }
  process.record.stamp = *stamp;
  SetPhase(process, Phase::kStarting);
}

void Supervisor::Act(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kStart:
      Start(action.id);
      return;
    case Action::Kind::kDrain:
      report_(StrCat(action.id.Name(), " is told to stop: ", action.reason));
      SetPhase(processes_.at(action.id), Phase::kDraining);
      host_.Signal(action.id, SIGTERM);
      return;
    case Action::Kind::kKill:
      report_(StrCat(action.id.Name(), " is killed: ", action.reason));
      processes_.at(action.id).view.killed = true;
      host_.Signal(action.id, SIGKILL);
      return;
    case Action::Kind::kForget:
      processes_.erase(action.id);
      ++revision_;
      return;
  }
}

bool Supervisor::Ready() const {
  std::map<std::string, int> ready;
  for (const auto& [id, process] : processes_) {
    if (process.view.phase == Phase::kReady) ++ready[id.Group()];
  }
  for (const auto& [group, count] : wanted_) {
    if (ready[group] < std::min(count, limits_.max_per_group)) return false;
  }
  return !stopping_;
}

std::vector<ProcessRecord> Supervisor::records() const {
  std::vector<ProcessRecord> records;
  for (const auto& [id, process] : processes_) records.push_back(process.record);
  return records;
}

std::string Supervisor::FailedRepeatedly(int times) const {
  for (const auto& [id, process] : processes_) {
    if (process.failures >= times) return id.Name();
  }
  return "";
}

}  // namespace freshet
