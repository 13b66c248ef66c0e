#ifndef FRESHET_SERVICES_RUNTIME_HTTP_CONNECTIONS_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_CONNECTIONS_H_

#include <array>
#include <cstddef>
#include <list>
#include <memory>

#include "base/mutex.h"

namespace freshet::runtime {

class HttpConnection;
using HttpConnectionPtr = std::shared_ptr<HttpConnection>;

// What a connection does.
enum class HttpState : size_t {
  kIdle,       // waits for the next request
  kReading,    // a request
  kDraining,   // has sent its last answer
  kAnswering,  // the answer is incomplete
  kWriting,    // sends the rest of a complete answer
};

// The open connections of a server by what they do. Confined to the server's thread.
class HttpConnections {
 public:
  using Place = std::list<HttpConnectionPtr>::iterator;

  Place Add(HttpConnectionPtr connection, HttpState state);
  void Move(Place place, HttpState from, HttpState to);
  void Remove(Place place, HttpState state);

  size_t size() const { return size_; }
  // The connection that has been in `state` for the longest time; nullptr: there is none.
  HttpConnectionPtr Oldest(HttpState state) const;

  // From now on, `drained` is notified when no connection has an answer to send.
  void StartDraining(Notification& drained);
  bool draining() const { return drained_ != nullptr; }

 private:
  std::list<HttpConnectionPtr>& In(HttpState state) { return lists_[static_cast<size_t>(state)]; }
  void NotifyIfDrained();

  std::array<std::list<HttpConnectionPtr>, 5> lists_;
  size_t size_ = 0;
  Notification* drained_ = nullptr;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_CONNECTIONS_H_
