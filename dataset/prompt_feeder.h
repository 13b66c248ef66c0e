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

// Encodes a row's prompt to token ids.
using PromptEncoder = std::function<absl::StatusOr<std::vector<int32_t>>(const DatasetRow&)>;

struct PromptFeederOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t max_prompt_tokens = 0;                      // >= 1
  int32_t first_attempt = 0;                          // Prompt::first_attempt of every prompt
  int64_t total_prompts = 0;                          // upper bound of ordinals; 0: unlimited
  PromptCursor start;                                 // ordinals that already ended are skipped
  int64_t batch_prompts = 64;                         // encoded ahead and offered together, >= 1
  absl::Duration max_wait = absl::Milliseconds(100);  // maximum time of one wait for room
};

// Keeps a store's prompt queue filled with dataset rows, in the order of Dataset::RowOf. Sets each
// prompt's attribute "prompt" to the text given to the model.
//
// Store and dataset must outlive the feeder. Confined to one thread at a time.
class PromptFeeder {
 public:
  PromptFeeder(TrajectoryStore& store, const Dataset& dataset, PromptEncoder encoder,
               PromptFeederOptions options);

  // Offers one batch to the store. Returns true if the store accepted a prompt; false if its queue
  // is full or the feeder is done(). INVALID_ARGUMENT: a row does not encode, is empty or exceeds
  // max_prompt_tokens; the message names it. Otherwise returns the store's error. After an error
  // the next call retries the same prompts.
  absl::StatusOr<bool> FeedOnce();

  // Whether every ordinal below total_prompts has been handed to the store.
  bool done() const;

  // Feeds until done (OK), `stop` (OK), or an error other than UNAVAILABLE and RESOURCE_EXHAUSTED.
  // After a stop request returns within max_wait plus one batch; TrajectoryStore::Close() ends the
  // wait at once.
  absl::Status Run(std::stop_token stop);

 private:
  absl::Status FillPending();
  absl::StatusOr<Prompt> MakePrompt(int64_t ordinal) const;
  bool Exhausted() const { return options_.total_prompts > 0 && next_ >= options_.total_prompts; }

  TrajectoryStore& store_;
  const Dataset& dataset_;
  const PromptEncoder encoder_;
  const PromptFeederOptions options_;

  int64_t next_ = 0;             // next ordinal to encode
  std::vector<Prompt> pending_;  // encoded, not yet accepted by the store
};

// Checks every row of `dataset` before a job starts. INVALID_ARGUMENT: one line "WHERE: ..." for
// each row that does not encode, is empty or exceeds `max_prompt_tokens`; at most 5 and "and N
// more".
absl::Status ValidatePrompts(const Dataset& dataset, const PromptEncoder& encoder,
                             int64_t max_prompt_tokens);

}  // namespace freshet

#endif  // FRESHET_DATASET_PROMPT_FEEDER_H_
