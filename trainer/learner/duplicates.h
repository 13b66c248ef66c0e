#ifndef FRESHET_TRAINER_LEARNER_DUPLICATES_H_
#define FRESHET_TRAINER_LEARNER_DUPLICATES_H_

#include <cstdint>
#include <vector>

#include "datastore/trajectory_store.h"
#include "trainer/learner/training_rows.h"

namespace freshet {

// Samples that count more than once in the loss, with `loss.not_asked: duplicate`. Both pure.

// How many more times each sample of `group` counts. The samples whose policy was asked are taken
// in turn, in the order of the group, once for each sample whose policy was not. So the counts
// differ by at most 1, and with them the group has as many samples with a loss as samples. All 0 if
// the policy was asked in none.
//
// After the alignment of trajectories in M-GRPO (arXiv:2511.13288). The choice is not random, so
// equal groups have equal duplicates.
std::vector<int32_t> Duplicates(const TrainGroup& group);

// Counts the duplicates in `rows`, as MakeTrainingRows returns them for `groups`, and returns how
// many there are. Sequences are not repeated: the columns loss_mask and duplicates say how often
// they count. A sample counts with all its segments. Advantages stay as they are, so that every
// reward of a group is once in its mean and deviation, also those of samples that were not asked.
int64_t AddDuplicates(const std::vector<TrainGroup>& groups, TrainingRows& rows);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_DUPLICATES_H_
