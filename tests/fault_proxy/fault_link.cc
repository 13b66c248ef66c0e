#include "tests/fault_proxy/fault_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace freshet {
namespace {

constexpr int64_t kMaxQueued = 1 << 20;  // max. bytes queued per direction before reading stops

size_t IndexOf(FaultDirection direction) { return static_cast<size_t>(direction); }

}  // namespace

FaultLink::FaultLink(int client, int server) {
  Flow& to_server = flows_[IndexOf(FaultDirection::kToServer)];
  Flow& to_client = flows_[IndexOf(FaultDirection::kToClient)];
  to_server.from = to_client.to = client;
  to_server.to = to_client.from = server;
}

FaultLink::~FaultLink() { Cut(/*reset=*/false); }

void FaultLink::Set(FaultDirection direction, const Toxics& toxics) {
  Flow& flow = flows_[IndexOf(direction)];
  flow.toxics = toxics;
  flow.limit_left = toxics.limit_bytes;
}

void FaultLink::Cut(bool reset) {
  if (closed_) return;
  closed_ = true;
  for (const Flow& flow : flows_) {
    const linger abort = {1, 0};
    if (reset) ::setsockopt(flow.from, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
    ::close(flow.from);
  }
}

bool FaultLink::WantsRead(const Flow& flow) const {
  return !flow.at_end && flow.limit_left != 0 && flow.queued < kMaxQueued;
}

std::array<pollfd, 2> FaultLink::PollSet() const {
  std::array<pollfd, 2> set;
  for (size_t side = 0; side < 2; ++side) {  // side 0: the client, which flow 0 reads
    const Flow& in = flows_[side];
    const Flow& out = flows_[1 - side];
    short events = 0;
    if (WantsRead(in)) events |= POLLIN;
    if (!out.pieces.empty() && out.pieces.front().due == absl::InfinitePast()) events |= POLLOUT;
    // A negative fd: with events == 0, poll would still report a hang-up on every call.
    set[side] = {events == 0 ? -1 : in.from, events, 0};
  }
  return set;
}

absl::Time FaultLink::NextDue() const {
  absl::Time due = absl::InfiniteFuture();
  for (const Flow& flow : flows_) {
    if (flow.pieces.empty() && flow.limit_left == 0) return absl::InfinitePast();
    if (flow.pieces.empty()) continue;
    const absl::Time front = flow.pieces.front().due;
    if (front != absl::InfinitePast()) due = std::min(due, front);
  }
  return due;
}

void FaultLink::Pump(const std::array<pollfd, 2>& ready, absl::Time now) {
  for (size_t side = 0; side < 2 && !closed_; ++side) {
    if ((ready[side].revents & ~POLLOUT) != 0 && WantsRead(flows_[side])) Read(flows_[side], now);
  }
  for (Flow& flow : flows_) {
    if (!closed_) Write(flow, now);
  }
  if (!closed_ && flows_[0].end_sent && flows_[1].end_sent) Cut(/*reset=*/false);
}

void FaultLink::Read(Flow& flow, absl::Time now) {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = ::recv(flow.from, buffer.data(), buffer.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    flow.at_end = true;
    return;
  }
  if (flow.toxics.swallow) {
    swallowed_ += count;
    return;
  }
  auto size = static_cast<int64_t>(count);
  if (flow.limit_left >= 0) {
    size = std::min(size, flow.limit_left);
    flow.limit_left -= size;
  }
  Queue(flow, std::string(buffer.data(), static_cast<size_t>(size)), now);
}

void FaultLink::Queue(Flow& flow, std::string bytes, absl::Time now) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t slice = flow.toxics.slice_bytes > 0 ? flow.toxics.slice_bytes : size;
  for (int64_t begin = 0; begin < size; begin += slice) {
    Piece piece;
    piece.bytes = bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(slice));
    const auto piece_size = static_cast<int64_t>(piece.bytes.size());
    piece.due = now + flow.toxics.latency;
    if (flow.toxics.bytes_per_second > 0) {
      const auto line_time = [&flow](int64_t count) {
        return absl::Seconds(1) * static_cast<double>(count) /
               static_cast<double>(flow.toxics.bytes_per_second);
      };
      flow.line_free = std::max(flow.line_free, now - line_time(flow.toxics.burst_bytes)) +
                       line_time(piece_size);
      piece.due = std::max(flow.line_free, now) + flow.toxics.latency;
    }
    flow.queued += piece_size;
    flow.pieces.push_back(std::move(piece));
  }
}

void FaultLink::Write(Flow& flow, absl::Time now) {
  while (!flow.pieces.empty() && flow.pieces.front().due <= now) {
    Piece& piece = flow.pieces.front();
    const ssize_t count = ::send(flow.to, piece.bytes.data(), piece.bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EAGAIN) {
      piece.due = absl::InfinitePast();  // blocked by the socket, no longer by time
      return;
    }
    if (count < 0) return Cut(/*reset=*/false);
    flow.forwarded += count;
    flow.queued -= count;
    piece.bytes.erase(0, static_cast<size_t>(count));
    if (piece.bytes.empty()) flow.pieces.pop_front();
  }
  if (!flow.pieces.empty()) return;
  if (flow.limit_left == 0) {
    cut_by_fault_ = true;
    return Cut(flow.toxics.reset);
  }
  if (flow.at_end && !flow.end_sent) {
    flow.end_sent = true;
    ::shutdown(flow.to, SHUT_WR);
  }
}

int64_t FaultLink::TakeForwarded(FaultDirection direction) {
  return std::exchange(flows_[IndexOf(direction)].forwarded, 0);
}

int64_t FaultLink::TakeSwallowed() { return std::exchange(swallowed_, 0); }

}  // namespace freshet
