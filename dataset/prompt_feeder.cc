#include "dataset/prompt_feeder.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/transient.h"
#include "dataset/error_list.h"

namespace freshet {
namespace {

// Limits the loop rate after Close(), when the store's waits return at once.
constexpr absl::Duration kIdlePause = absl::Milliseconds(1);

// Encodes a row's prompt. Errors start with `where`.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const std::string& where, const DatasetRow& row,
                                                  const PromptEncoder& encoder,
                                                  int64_t max_prompt_tokens) {
  absl::StatusOr<std::vector<int32_t>> ids = encoder(row);
  if (!ids.ok()) return InvalidArgument(where, ": ", Message(ids.status()));
  if (ids->empty()) return InvalidArgument(where, ": the prompt has no tokens");
  if (static_cast<int64_t>(ids->size()) > max_prompt_tokens) {
    return InvalidArgument(where, ": the prompt has ", ids->size(), " tokens, more than ",
                           max_prompt_tokens,
                           " that fit; shorten or remove the row, or leave it more room");
  }
  return ids;
}

}  // namespace

PromptFeeder::PromptFeeder(TrajectoryStore& store, const Dataset& dataset, PromptEncoder encoder,
                           PromptFeederOptions options)
    : store_(store),
      dataset_(dataset),
      encoder_(std::move(encoder)),
      options_(std::move(options)),
      next_(std::max<int64_t>(0, options_.start.low_water)) {}

absl::StatusOr<Prompt> PromptFeeder::MakePrompt(int64_t ordinal) const {
  const int64_t index = dataset_.RowOf(options_.seed, ordinal, options_.shuffle);
  FRESHET_ASSIGN_OR_RETURN(DatasetRow row, dataset_.Get(index));
  Prompt prompt;
  prompt.ordinal = ordinal;
  prompt.first_attempt = options_.first_attempt;
  FRESHET_ASSIGN_OR_RETURN(prompt.prompt_ids, EncodePrompt(dataset_.Where(index), row, encoder_,
                                                           options_.max_prompt_tokens));
  prompt.attributes = std::move(row.attributes);
  prompt.attributes["prompt"] = std::move(row.prompt);
  return prompt;
}

absl::Status PromptFeeder::FillPending() {
  const std::vector<int64_t>& ended = options_.start.above;
  while (static_cast<int64_t>(pending_.size()) < options_.batch_prompts && !Exhausted()) {
    if (!std::binary_search(ended.begin(), ended.end(), next_)) {
      FRESHET_ASSIGN_OR_RETURN(Prompt prompt, MakePrompt(next_));
      pending_.push_back(std::move(prompt));
    } else {
      dataset_.RowOf(options_.seed, next_, options_.shuffle);  // its row has been used
    }
    ++next_;
  }
  return absl::OkStatus();
}

bool PromptFeeder::done() const {
  if (!pending_.empty()) return false;
  // All remaining ordinals may already have ended.
  const std::vector<int64_t>& ended = options_.start.above;
  if (options_.total_prompts <= 0) return false;
  for (int64_t ordinal = next_; ordinal < options_.total_prompts; ++ordinal) {
    if (!std::binary_search(ended.begin(), ended.end(), ordinal)) return false;
  }
  return true;
}

absl::StatusOr<bool> PromptFeeder::FeedOnce() {
  const absl::Status filled = FillPending();
  // A bad row is reported only after the good rows before it are stored.
  if (pending_.empty()) {
    FRESHET_RETURN_IF_ERROR(filled);
    return false;
  }
  FRESHET_ASSIGN_OR_RETURN(const PutPromptsReply reply, store_.PutPrompts(pending_));
  if (reply.accepted < 0 || reply.accepted > static_cast<int64_t>(pending_.size())) {
    return Internal("the store took ", reply.accepted, " of ", pending_.size(), " prompts");
  }
  pending_.erase(pending_.begin(), pending_.begin() + reply.accepted);
  return reply.accepted > 0;
}

absl::Status PromptFeeder::Run(std::stop_token stop) {
  Notification stopped;
  const std::stop_callback on_stop(stop, [&stopped] { stopped.Notify(); });
  while (!stop.stop_requested() && !done()) {
    const uint64_t seen = store_.ChangeCount(Topic::kPrompts);
    const absl::StatusOr<bool> fed = FeedOnce();
    if (!fed.ok() && !IsTransient(fed.status())) return fed.status();
    if (fed.ok() && *fed) continue;
    if (!fed.ok()) {
      FRESHET_LOG(Warning) << "event=put_prompts_failed error=" << LogQuoted(Message(fed.status()));
    }
    if (store_.AwaitChange(Topic::kPrompts, seen, options_.max_wait) == seen) {
      stopped.WaitFor(kIdlePause);
    }
  }
  return absl::OkStatus();
}

absl::Status ValidatePrompts(const Dataset& dataset, const PromptEncoder& encoder,
                             int64_t max_prompt_tokens) {
  ErrorList errors;
  for (int64_t index = 0; index < dataset.size(); ++index) {
    FRESHET_ASSIGN_OR_RETURN(const DatasetRow row, dataset.Get(index));
    const absl::Status status =
        EncodePrompt(dataset.Where(index), row, encoder, max_prompt_tokens).status();
    if (!status.ok()) errors.Add(Message(status));
  }
  return errors.ToStatus();
}

}  // namespace freshet
