#include "services/runtime/http_connections.h"

#include <utility>

namespace freshet::runtime {

HttpConnections::Place HttpConnections::Add(HttpConnectionPtr connection, HttpState state) {
  ++size_;
  return In(state).insert(In(state).end(), std::move(connection));
}

void HttpConnections::Move(Place place, HttpState from, HttpState to) {
  In(to).splice(In(to).end(), In(from), place);
  NotifyIfDrained();
}

void HttpConnections::Remove(Place place, HttpState state) {
  --size_;
  In(state).erase(place);
  NotifyIfDrained();
}

HttpConnectionPtr HttpConnections::Oldest(HttpState state) const {
  const auto& connections = lists_[static_cast<size_t>(state)];
  return connections.empty() ? nullptr : connections.front();
}

void HttpConnections::StartDraining(Notification& drained) {
  drained_ = &drained;
  NotifyIfDrained();
}

void HttpConnections::NotifyIfDrained() {
  if (drained_ != nullptr && In(HttpState::kAnswering).empty() && In(HttpState::kWriting).empty()) {
    drained_->Notify();
  }
}

}  // namespace freshet::runtime
