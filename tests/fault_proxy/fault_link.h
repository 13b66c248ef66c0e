#ifndef FRESHET_TESTS_FAULT_PROXY_FAULT_LINK_H_
#define FRESHET_TESTS_FAULT_PROXY_FAULT_LINK_H_

#include <poll.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/time/time.h"

namespace freshet {

enum class FaultDirection { kToServer = 0, kToClient = 1 };

// Faults of one direction. The default has none.
struct Toxics {
  absl::Duration latency;        // added to each chunk
  int64_t bytes_per_second = 0;  // 0: no limit
  int64_t burst_bytes = 0;       // of the limit's token bucket, which is full at first
  int64_t slice_bytes = 0;       // max. bytes per write; 0: as read
  int64_t limit_bytes = -1;      // bytes forwarded after Set() until the connection ends; -1: never
  bool reset = false;            // end by RST instead of FIN on limit_bytes
  bool swallow = false;          // discard bytes, keep the connection open
};

// The two sockets of a proxied connection. Confined to one thread at a time.
class FaultLink {
 public:
  // Takes ownership of both sockets, which must be non-blocking.
  FaultLink(int client, int server);
  ~FaultLink();
  FaultLink(const FaultLink&) = delete;
  FaultLink& operator=(const FaultLink&) = delete;

  // Sets the faults of `direction` and resets its counters.
  void Set(FaultDirection direction, const Toxics& toxics);
  // Closes both sockets, by RST if `reset`.
  void Cut(bool reset);

  // What to poll for, client first, and the time of the next timed action.
  std::array<pollfd, 2> PollSet() const;
  absl::Time NextDue() const;
  // Handles the events in `ready`.
  void Pump(const std::array<pollfd, 2>& ready, absl::Time now);

  bool closed() const { return closed_; }
  bool cut_by_fault() const { return cut_by_fault_; }
  // Bytes written since the last call, and bytes discarded.
  int64_t TakeForwarded(FaultDirection direction);
  int64_t TakeSwallowed();

 private:
  struct Piece {
    std::string bytes;
    absl::Time due;
  };
  struct Flow {
    int from = -1;
    int to = -1;
    Toxics toxics;
    std::deque<Piece> pieces;
    int64_t queued = 0;                           // bytes in `pieces`
    int64_t limit_left = -1;                      // bytes that may still be read; -1: unlimited
    absl::Time line_free = absl::InfinitePast();  // when the bandwidth limit allows the next piece
    bool at_end = false;                          // the sender has closed
    bool end_sent = false;                        // the receiver's end is closed, too
    int64_t forwarded = 0;
  };

  bool WantsRead(const Flow& flow) const;
  void Read(Flow& flow, absl::Time now);
  void Queue(Flow& flow, std::string bytes, absl::Time now);
  void Write(Flow& flow, absl::Time now);

  std::array<Flow, 2> flows_;  // by direction
  bool closed_ = false;
  bool cut_by_fault_ = false;
  int64_t swallowed_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_FAULT_PROXY_FAULT_LINK_H_
