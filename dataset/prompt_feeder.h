#ifndef FRESHET_DATASET_PROMPT_FEEDER_H_
#define FRESHET_DATASET_PROMPT_FEEDER_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "dataset/dataset.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Token ids of a prompt's text.
using PromptEncoder = std::function<absl::StatusOr<std::vector<int32_t>>(const std::string&)>;

struct PromptFeederOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t max_prompt_tokens = 0;  // >= 1
  int32_t first_attempt = 0;      // of every prompt fed (Prompt::first_attempt)
  int64_t total_prompts = 0;      // ordinals stay below it; 0: no end
  PromptCursor start;             // ordinals that ended before are not fed again
  int64_t batch_prompts = 64;     // encoded ahead and offered at once, >= 1
  absl::Duration max_wait = absl::Milliseconds(100);  // bound of one wait for room
};

// Keeps a store's prompt queue full with the rows of a dataset, in the order of RowOfOrdinal.
// Attribute "prompt" of each prompt is the text given to the model.
//
// Store and dataset must outlive the feeder. Confined to one thread at a time.
class PromptFeeder {
 public:
  PromptFeeder(TrajectoryStore& store, const Dataset& dataset, PromptEncoder encoder,
               PromptFeederOptions options);

  // Offers one batch to the store. True when the store took a prompt; false when its queue is full
  // or everything has been fed (done()). INVALID_ARGUMENT, naming the row, for one that does not
  // encode, is empty or longer than max_prompt_tokens; else the store's error. After an error
  // nothing is lost: the next call tries the same prompts again.
  absl::StatusOr<bool> FeedOnce();

  // Every ordinal below total_prompts has been handed to the store.
  bool done() const;

  // Feeds until done, `stop`, or an error other than UNAVAILABLE and RESOURCE_EXHAUSTED; OK in the
  // first two cases. Returns at most max_wait and one batch after the request;
  // TrajectoryStore::Close() ends the wait at once.
  absl::Status Run(std::stop_token stop);

 private:
  absl::Status FillPending();
  absl::StatusOr<Prompt> MakePrompt(int64_t ordinal) const;
  bool Exhausted() const { return options_.total_prompts > 0 && next_ >= options_.total_prompts; }

  TrajectoryStore& store_;
  const Dataset& dataset_;
  const PromptEncoder encoder_;
  const PromptFeederOptions options_;

  int64_t next_ = 0;             // ordinal to encode next
  std::vector<Prompt> pending_;  // encoded, not yet taken by the store
};

// Checks every row of `dataset` before a job starts: INVALID_ARGUMENT with a line "WHERE: ..." for
// each row that does not encode, is empty or is longer than `max_prompt_tokens`; at most 5 and
// "and N more".
absl::Status ValidatePrompts(const Dataset& dataset, const PromptEncoder& encoder,
                             int64_t max_prompt_tokens);

}  // namespace freshet

#endif  // FRESHET_DATASET_PROMPT_FEEDER_H_
