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

// What happens to the bytes of one direction. The default harms nothing.
struct Toxics {
  absl::Duration latency;        // added to each piece
  int64_t bytes_per_second = 0;  // 0: no limit
  int64_t slice_bytes = 0;       // pieces of at most so many bytes, each sent by itself; 0: as read
  int64_t limit_bytes = -1;      // a connection ends when it has forwarded so many since the toxic
                                 // was set; -1: never
  bool reset = false;            // ends by limit_bytes are resets (RST)
  bool swallow = false;          // bytes vanish, the connection stays
};

// The two sockets of one proxied connection, driven by the proxy's thread.
// Confined to one thread at a time.
class FaultLink {
 public:
  // Takes both sockets, non-blocking.
  FaultLink(int client, int server);
  ~FaultLink();
  FaultLink(const FaultLink&) = delete;
  FaultLink& operator=(const FaultLink&) = delete;

  // Starts the counts of `direction` again under new faults.
  void Set(FaultDirection direction, const Toxics& toxics);
  // Closes both sides; with `reset`, by RST.
  void Cut(bool reset);

  // What to wait for, client first; and the time when something is due.
  std::array<pollfd, 2> PollSet() const;
  absl::Time NextDue() const;
  // Reads and writes what `ready` allows.
  void Pump(const std::array<pollfd, 2>& ready, absl::Time now);

  bool closed() const { return closed_; }
  bool cut_by_fault() const { return cut_by_fault_; }
  // Bytes written, and bytes swallowed, since the last call.
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
    int64_t limit_left = -1;                      // bytes that may still be read; -1: no limit
    absl::Time line_free = absl::InfinitePast();  // when the bandwidth allows the next piece
    bool at_end = false;                          // the sender has closed
    bool end_sent = false;                        // and the receiver knows
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
