#ifndef FRESHET_WEIGHTS_BROADCAST_RECEIVER_H_
#define FRESHET_WEIGHTS_BROADCAST_RECEIVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "collective/communicator_backend.h"
#include "weights/bucket_progress.h"
#include "weights/manifest.h"
#include "weights/weight_buffer_pool.h"
#include "weights/weight_subscriber.h"
#include "weights/weight_sync_observer.h"

namespace freshet {

// The broadcasts that together bring a version, from an untrusted caller.
struct BroadcastOrder {
  // One sender's broadcast.
  struct Group {
    std::string id;
    int rank = 1;  // of this process; the sender has rank 0
    int size = 2;
    std::string rendezvous;              // "": this process belongs to the group already
    std::vector<ByteRange> ranges = {};  // that it broadcasts, one after the other
  };
  WeightManifest manifest;
  std::string backend;
  // Side by side. Together their ranges are the version, or all of it but its beginning.
  std::vector<Group> groups;
  int64_t piece_bytes = 0;         // each range is broadcast in pieces of so many
  absl::Duration silence_timeout;  // a group without progress has failed
};

// An engine's side of one job's broadcasts. Keeps its groups from one version to the next. If a
// group fails, the others end too; the verified prefix is kept, so that the next groups continue
// after it. Thread-safe.
class BroadcastReceiver {
 public:
  struct Reply {
    bool prepared = false;  // the subscriber holds the version
    int64_t verified = 0;   // otherwise: length of the verified prefix here
  };

  // `clock` and `observer`, which may be null, must outlive it.
  BroadcastReceiver(OpenCommunicatorBackend open, std::shared_ptr<WeightSubscriber> subscriber,
                    const WeightLimits& limits, const Clock& clock, WeightSyncObserver* observer);
  ~BroadcastReceiver();

  // Whether this engine needs the version and can take part. If so, ends a Receive in progress and
  // waits for its end. UNIMPLEMENTED: it lacks the backend. FAILED_PRECONDITION: as for
  // WeightSubscriber::Admit. INVALID_ARGUMENT: the manifest. ABORTED: the Receive has not ended by
  // `deadline`.
  absl::StatusOr<Reply> Ask(const WeightManifest& manifest, const std::string& backend,
                            absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // Takes part in a broadcast and prepares the version. A newer call ends this one with ABORTED;
  // `cancelled` keeps it from starting. UNAVAILABLE also if the rendezvous is "" and this process
  // does not belong to the group, or no longer.
  // Blocks until `deadline`; a backend that does not heed `stop` may exceed it by its connect
  // timeout of at most 30 s. Errors: as for Ask, CommunicatorBackend::Connect and Communicator;
  // INVALID_ARGUMENT: the order; DATA_LOSS: the bytes differ from the manifest; RESOURCE_EXHAUSTED:
  // out of memory.
  absl::StatusOr<Reply> Receive(
      const BroadcastOrder& order, absl::Time deadline,
      const std::function<bool()>& cancelled = [] { return false; }) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the Receive in progress and all later ones with ABORTED.
  void Close(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<std::shared_ptr<CommunicatorBackend>> Backend(const std::string& name)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the offset of the first byte that is broadcast.
  absl::StatusOr<int64_t> CheckOrder(const BroadcastOrder& order) const;
  // Ends the former Receive, waits for its end, and becomes the only one. Returns its number.
  absl::StatusOr<int64_t> Begin(const WeightManifest& manifest, int64_t first, absl::Time deadline,
                                const std::function<bool()>& cancelled) ABSL_LOCKS_EXCLUDED(mu_);
  using Communicators = std::map<std::string, std::shared_ptr<Communicator>>;  // by group
  // Stops the Receive in progress from connecting. Returns what it may wait in, to be aborted.
  Communicators StopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void AbortAll(const Communicators& running, const std::string& reason);
  // Ends the Receive in progress with ABORTED; does not wait.
  void AbortGroups(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  // Memory for the version: what a failed group left, if it is of this version.
  absl::Status Reserve(const WeightManifest& manifest, int64_t first) ABSL_LOCKS_EXCLUDED(mu_);
  // Closes the groups that are not in the order.
  void LeaveOthers(const BroadcastOrder& order) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<Communicator>> Join(const BroadcastOrder& order,
                                                     const BroadcastOrder::Group& group,
                                                     absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakePieces(const BroadcastOrder& order, const BroadcastOrder::Group& group,
                          Communicator& communicator, absl::Time deadline);
  absl::Status Verify(const WeightManifest& manifest, const std::vector<int64_t>& buckets)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Runs `part` for all groups side by side. If one fails, ends the others; returns its error.
  absl::Status ForGroups(size_t groups, absl::FunctionRef<absl::Status(size_t group)> part)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Take(const BroadcastOrder& order, int64_t first, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Whether buffer_ is for this version, divided like this.
  bool KeepsLocked(const WeightManifest& manifest) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t VerifiedLocked(const WeightManifest& manifest) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const OpenCommunicatorBackend open_;
  const std::shared_ptr<WeightSubscriber> subscriber_;
  const WeightLimits limits_;
  const Clock& clock_;
  WeightSyncObserver* const observer_;
  WeightBufferPool pool_;

  // Of the Receive in progress alone; without one, guarded by mu_.
  std::shared_ptr<WeightBuffer> buffer_;
  std::unique_ptr<BucketProgress> progress_;

  Mutex mu_;
  CondVar changed_;
  bool receiving_ ABSL_GUARDED_BY(mu_) = false;
  std::string closed_ ABSL_GUARDED_BY(mu_);  // why; "": it is not
  int64_t newest_ ABSL_GUARDED_BY(mu_) = 0;  // number of the newest Receive
  std::stop_source connecting_ ABSL_GUARDED_BY(mu_);
  Communicators communicators_ ABSL_GUARDED_BY(mu_);
  absl::Duration verify_time_ ABSL_GUARDED_BY(mu_);
  std::string backend_name_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<CommunicatorBackend> backend_ ABSL_GUARDED_BY(mu_);
  // Of the version in buffer_; the content hash alone does not determine the sizes.
  std::string content_hash_ ABSL_GUARDED_BY(mu_);
  int64_t total_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t bucket_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_BROADCAST_RECEIVER_H_
