#ifndef FRESHET_TRAINER_LEARNER_STATE_STREAM_H_
#define FRESHET_TRAINER_LEARNER_STATE_STREAM_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "model/torch.h"
#include "trainer/learner/lent_parts.h"
#include "trainer/learner/shard_layout.h"
#include "trainer/learner/state_blocks.h"

namespace freshet {

// Longest wait of the other ranks for rank 0's checkpoint: between two reads, and for the end of
// the write.
inline constexpr absl::Duration kWritePatience = absl::Hours(12);

// Rank 0's side of a divided state: gathers blocks from the parts of all ranks as they are read.
// The other ranks call ServeBlocks. If a read fails, the state is lost: `group` is aborted with the
// reason. One thread reads; Detach is thread-safe.
class GatheredBlocks final : public StateBlocks {
 public:
  // `over` and `group` must outlive this object, unless Detach is called. Only this object uses
  // `over`.
  GatheredBlocks(Communicator& over, Communicator& group, ShardLayout layout, LentParts parts);
  // Tells the other ranks that no read follows.
  ~GatheredBlocks() override;

  // UNAVAILABLE: an error of the communicators, which is that of later reads too. ABORTED: the
  // reason of Detach.
  absl::StatusOr<at::Tensor> Read(StateColumn column, size_t block) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Copy() override { parts_.Copy(); }
  // Ends a read in progress and fails later ones with ABORTED and `reason`. The communicators are
  // not used any more.
  void Detach(const char* reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<at::Tensor> Gather(StateColumn column, size_t block);

  Communicator& over_;
  Communicator& group_;
  const ShardLayout layout_;
  LentParts parts_;  // of the thread that reads
  Mutex mu_;
  absl::Status detached_ ABSL_GUARDED_BY(mu_);
};

// Another rank's side: sends its parts of the blocks that rank 0 reads, until it needs no more.
// Errors of Communicator, after which `over` has failed.
absl::Status ServeBlocks(Communicator& over, const ShardLayout& layout, const LentParts& parts);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_STATE_STREAM_H_
