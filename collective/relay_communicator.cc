#include "collective/relay_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/chunks.h"

namespace freshet {
namespace {

constexpr size_t kRelayChunkBytes = size_t{1} << 20;

std::string ToString(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class RelayCommunicator final : public Communicator {
 public:
  RelayCommunicator(int rank, int size, std::shared_ptr<RelayLinks> links)
      : rank_(rank), size_(size), links_(std::move(links)) {}
  ~RelayCommunicator() override { links_->Close(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status Broadcast(std::span<std::byte> data, int root, absl::Duration timeout) override {
    if (root < 0 || root >= size_) return InvalidArgument("root ", root, " of ", size_, " ranks");
    FRESHET_RETURN_IF_ERROR(error());
    const absl::Time deadline = absl::Now() + timeout;
    for (size_t first = 0; first < data.size() && size_ > 1; first += kRelayChunkBytes) {
      const auto part = data.subspan(first, std::min(kRelayChunkBytes, data.size() - first));
      FRESHET_RETURN_IF_ERROR(Check(BroadcastChunk(part, root, deadline)));
    }
    return absl::OkStatus();
  }

  absl::Status AllReduce(std::span<float> data, absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(error());
    if (size_ == 1) return absl::OkStatus();
    const absl::Time deadline = absl::Now() + timeout;
    const std::span<std::byte> bytes = std::as_writable_bytes(data);
    const auto part = [&](const Chunk& chunk) { return bytes.subspan(chunk.first, chunk.size); };
    return Check(TwoAtATime(
        bytes.size(), kRelayChunkBytes,
        [&](const Chunk& chunk) {
          return rank_ == 0 ? absl::OkStatus()
                            : links_->Send(0, ToString(part(chunk)), deadline - absl::Now());
        },
        [&](const Chunk& chunk) {
          return rank_ == 0
                     ? AddUp(data.subspan(chunk.first / sizeof(float), chunk.size / sizeof(float)),
                             deadline)
                     : Take(0, part(chunk), deadline);
        }));
  }

  absl::Status ReduceScatter(std::span<const float> data, std::span<float> own,
                             absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckParts(data.size(), own.size(), size_));
    std::vector<float> sum(data.begin(), data.end());
    FRESHET_RETURN_IF_ERROR(AllReduce(sum, timeout));
    std::ranges::copy(std::span(sum).subspan(static_cast<size_t>(rank_) * own.size(), own.size()),
                      own.begin());
    return absl::OkStatus();
  }

  absl::Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                         absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckParts(all.size(), own.size(), size_));
    const absl::Time deadline = absl::Now() + timeout;
    for (int root = 0; root < size_; ++root) {
      const std::span<std::byte> part =
          all.subspan(static_cast<size_t>(root) * own.size(), own.size());
      if (root == rank_) std::ranges::copy(own, part.begin());
      FRESHET_RETURN_IF_ERROR(Broadcast(part, root, deadline - absl::Now()));
    }
    return error();
  }

  // Rank 0 asks for each chunk, so that no rank sends what rank 0 does not yet take.
  absl::Status Gather(std::span<const std::byte> own, std::span<std::byte> all,
                      absl::Duration timeout) override {
    FRESHET_RETURN_IF_ERROR(CheckGather(all.size(), own.size(), rank_, size_));
    FRESHET_RETURN_IF_ERROR(error());
    const absl::Time deadline = absl::Now() + timeout;
    if (rank_ != 0) return Check(SendAsAsked(own, deadline));
    std::ranges::copy(own, all.begin());
    for (int other = 1; other < size_; ++other) {
      const auto theirs = all.subspan(static_cast<size_t>(other) * own.size(), own.size());
      FRESHET_RETURN_IF_ERROR(Check(TwoAtATime(
          theirs.size(), kRelayChunkBytes,
          [&](const Chunk&) { return links_->Send(other, "", deadline - absl::Now()); },
          [&](const Chunk& chunk) {
            return Take(other, theirs.subspan(chunk.first, chunk.size), deadline);
          })));
    }
    return absl::OkStatus();
  }

  absl::Status Barrier(absl::Duration timeout) override {
    float one = 1;
    return AllReduce({&one, 1}, timeout);
  }

  void Abort(const std::string& reason) override { (void)Check(absl::AbortedError(reason)); }

  absl::Status error() override {
    const MutexLock lock(mu_);
    return error_;
  }

 private:
  // Keeps the first error, which ends the group.
  absl::Status Check(const absl::Status& status) {
    if (status.ok()) return status;
    absl::Status first;
    {
      const MutexLock lock(mu_);
      error_.Update(status);
      first = error_;
    }
    links_->Close();
    return first;
  }

  absl::Status Take(int from, std::span<std::byte> to, absl::Time deadline) {
    FRESHET_ASSIGN_OR_RETURN(const std::string bytes,
                             links_->Receive(from, deadline - absl::Now()));
    if (bytes.size() != to.size()) {
      return StatusOf(absl::StatusCode::kUnavailable, "collective: rank ", from, " sent ",
                      bytes.size(), " bytes, not ", to.size());
    }
    if (!to.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  absl::Status SendAsAsked(std::span<const std::byte> own, absl::Time deadline) {
    for (size_t first = 0; first < own.size(); first += kRelayChunkBytes) {
      FRESHET_RETURN_IF_ERROR(Take(0, {}, deadline));
      const auto chunk = own.subspan(first, std::min(kRelayChunkBytes, own.size() - first));
      FRESHET_RETURN_IF_ERROR(links_->Send(0, ToString(chunk), deadline - absl::Now()));
    }
    return absl::OkStatus();
  }

  absl::Status SendToOthers(std::span<const std::byte> part, int but, absl::Time deadline) {
    for (int other = 1; other < size_; ++other) {
      if (other == but) continue;
      FRESHET_RETURN_IF_ERROR(links_->Send(other, ToString(part), deadline - absl::Now()));
    }
    return absl::OkStatus();
  }

  absl::Status BroadcastChunk(std::span<std::byte> part, int root, absl::Time deadline) {
    if (rank_ != 0) {
      return rank_ == root ? links_->Send(0, ToString(part), deadline - absl::Now())
                           : Take(0, part, deadline);
    }
    if (root != 0) FRESHET_RETURN_IF_ERROR(Take(root, part, deadline));
    return SendToOthers(part, root, deadline);
  }

  // Rank 0's part of an all-reduce. Adds in the order of the ranks.
  absl::Status AddUp(std::span<float> sum, absl::Time deadline) {
    std::vector<float> theirs(sum.size());
    for (int other = 1; other < size_; ++other) {
      FRESHET_RETURN_IF_ERROR(Take(other, std::as_writable_bytes(std::span(theirs)), deadline));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
    }
    return SendToOthers(std::as_bytes(sum), /*but=*/0, deadline);
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<RelayLinks> links_;
  Mutex mu_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Communicator> MakeRelayCommunicator(int rank, int size,
                                                    std::shared_ptr<RelayLinks> links) {
  return std::make_unique<RelayCommunicator>(rank, size, std::move(links));
}

}  // namespace freshet
