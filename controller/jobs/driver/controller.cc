#include "controller/jobs/driver/controller.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kReadOnly = -1;

DriverContext MakeContext(const ControllerPorts& ports, const ControllerOptions& options,
                          ControllerTerm& term) {
  return DriverContext{term.registry, *term.hub,      term.reservations, ports.events,
                       ports.stores,  ports.trainers, ports.observer,    term.pools,
                       term.scaler,   ports.clock,    options.timing,    options.retention,
                       options.roots, term.fence};
}

}  // namespace

ControllerTerm::ControllerTerm(const ControllerPorts& ports, const ControllerOptions& options,
                               int64_t token, std::unique_ptr<WorkerHub> workers)
    : fence(token),
      registry(
          ports.records, ports.events, token, ports.clock,
          [&observer = ports.observer](job::v1::JobState state) { observer.OnJobEnded(state); }),
      hub(std::move(workers)),
      scaler(ports.scaler != nullptr ? *ports.scaler : *hub),
      pools(options.pools),
      manager(MakeContext(ports, options, *this), options.own_log) {}

Controller::Controller(const ControllerPorts& ports, ControllerOptions options)
    : ports_(ports),
      options_(std::move(options)),
      registry_(ports.records, ports.events, kReadOnly, ports.clock),
      leadership_(ports.lease, ports.clock,
                  {options_.candidate, options_.timing.leader_ttl, options_.timing.leader_renewal},
                  {[this](int64_t token) { return BeginTerm(token); },
                   [this](const std::string& why) { EndTerm(why); },
                   [this](const absl::Status& status) { ports_.observer.OnDatastore(status); }}) {}

Controller::~Controller() { Stop(); }

std::shared_ptr<ControllerTerm> Controller::Active() const {
  const Leadership::View view = leadership_.Get();
  MutexLock lock(mu_);
  return view.leading && term_ != nullptr && term_->fence == view.token ? term_ : nullptr;
}

absl::Status Controller::BeginTerm(int64_t token) {
  // Fence the former leader before its records are read.
  FRESHET_RETURN_IF_ERROR(ports_.records.Fence(token));
  WorkerHubOptions options;
  options.heartbeat_interval = options_.timing.heartbeat_interval;
  options.membership.lost_after = options_.timing.lost_after;
  options.membership.rejoin_grace = options_.timing.rejoin_grace;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<WorkerHub> hub,
                           WorkerHub::Create(ports_.records, token, ports_.clock, options));
  auto term = std::make_shared<ControllerTerm>(ports_, options_, token, std::move(hub));
  FRESHET_RETURN_IF_ERROR(term->manager.Start());
  ports_.observer.OnLeading(true);
  MutexLock lock(mu_);
  term_ = std::move(term);
  return absl::OkStatus();
}

void Controller::EndTerm(const std::string& why) {
  std::shared_ptr<ControllerTerm> term;
  {
    MutexLock lock(mu_);
    term = std::move(term_);
    term_ = nullptr;
  }
  ports_.observer.OnLeading(false);
  if (term != nullptr) {
    term->hub->Close(
        StatusOf(absl::StatusCode::kUnavailable, "this controller no longer leads: ", why));
    term->manager.Stop();
    // Again, because drivers report until they have stopped.
    ports_.observer.OnLeading(false);
  }
}

}  // namespace freshet
