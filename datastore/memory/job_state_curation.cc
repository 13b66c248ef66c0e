#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/curation_policy.h"
#include "datastore/memory/job_state.h"
#include "datastore/response_check.h"

namespace freshet {
namespace {

std::vector<double> RewardsOf(const Group& group) {
  std::vector<double> rewards;
  rewards.reserve(group.samples.size());
  for (const SampleSlot& slot : group.samples) rewards.push_back(slot.score->reward);
  return rewards;
}

absl::Status CheckHistories(const char* of,
                            const std::map<std::string, RolloutHistory>& histories) {
  for (const auto& [name, history] : histories) {
    const bool good = std::isfinite(history.samples) && history.samples > 0 &&
                      history.successes >= 0 && history.successes <= history.samples &&
                      history.longest >= 0;
    if (!good) {
      return InvalidArgument("the history of ", of, " '", name, "' has ", history.successes,
                             " successes of ", history.samples, " samples, the longest of ",
                             history.longest, " tokens");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSuccess(const PooledSuccess& success, const PolicyVersion& committed) {
  if (success.uid.empty()) return InvalidArgument("a success without a uid");
  absl::Status checked = CheckResponse(*success.response, {0, 0, committed, /*needs_loss=*/true});
  if (checked.ok() && success.response->finish == FinishReason::kNotAsked) {
    checked = InvalidArgument("the policy was not asked");
  }
  if (checked.ok()) checked = CheckScore(success.score.get());
  if (checked.ok()) return checked;
  return InvalidArgument("success ", success.uid, ": ", Message(checked));
}

}  // namespace

CurationState JobState::Curation(int64_t max_success_bytes) const {
  CurationState state;
  state.successes = pool_.Newest(max_success_bytes);
  state.left_out = pool_.size() - std::ssize(state.successes);
  state.rows = histories_.rows();
  state.tasks = histories_.tasks();
  if (options_.adaptive.has_value()) state.min_reward = options_.adaptive->min_reward;
  return state;
}

absl::Status JobState::RestoreCuration(CurationState state) {
  FRESHET_RETURN_IF_ERROR(CheckHistories("row", state.rows));
  FRESHET_RETURN_IF_ERROR(CheckHistories("task", state.tasks));
  for (const auto& [prompt, success] : state.successes) {
    FRESHET_RETURN_IF_ERROR(CheckSuccess(success, Committed()));
  }
  if (options_.adaptive.has_value() && options_.adaptive->min_reward == state.min_reward) {
    histories_ = RolloutHistories(std::move(state.rows), std::move(state.tasks));
  }
  if (!options_.replay.has_value()) return absl::OkStatus();
  for (auto& [prompt, success] : state.successes) {
    if (success.score->reward < options_.replay->min_reward) continue;
    AddSuccess(prompt, std::move(success));
  }
  return absl::OkStatus();
}

void JobState::AddSuccess(const std::string& prompt, PooledSuccess success) {
  success.oldest =
      ComputeLossWindow(options_.BoundOf(/*replayed=*/true), steps_.version(), *success.response)
          .min_version;
  pool_.Add(prompt, std::move(success), *options_.replay, steps_.version());
}

void JobState::Adapt(Group& group) {
  const RolloutDecision decision = histories_.Decide(*options_.adaptive, options_.group_size,
                                                     *group.prompt, PromptKey(*group.prompt));
  group.samples.assign(static_cast<size_t>(decision.samples), SampleSlot{});
  group.max_new_tokens = decision.max_new_tokens;
  counters_.skipped_samples += options_.group_size - decision.samples;
  counters_.limited_groups += decision.max_new_tokens > 0 ? 1 : 0;
}

void JobState::RememberOutcome(const Group& group) {
  std::vector<SampleOutcome> samples;
  samples.reserve(group.samples.size());
  for (const SampleSlot& slot : group.samples) {
    samples.push_back({slot.score->reward, std::ssize(slot.response->response_ids)});
  }
  histories_.Add(*options_.adaptive, *group.prompt, PromptKey(*group.prompt), samples);
}

void JobState::Replay(Group& group) {
  const ReplayOptions& options = *options_.replay;
  const ReplayDecision decision = DecideReplay(options, RewardsOf(group));
  const std::string prompt = PromptKey(*group.prompt);
  const SampleSlot* const kept =
      decision.keep.has_value() ? &group.samples[static_cast<size_t>(*decision.keep)] : nullptr;
  if (kept != nullptr && kept->response->finish != FinishReason::kNotAsked) {
    AddSuccess(prompt, {SampleUid(options_.job, KeyOf(group, *decision.keep)), kept->response,
                        kept->score});
  }
  if (!decision.replace.has_value()) return;
  const PooledSuccess* success = pool_.Find(prompt);
  if (success == nullptr || !MayReplay(options_.staleness, options, group.Age(), success->oldest)) {
    return;
  }
  WriteEndRow(group, *decision.replace, LedgerEvent::kDropped, "replaced");
  SampleSlot& slot = group.samples[static_cast<size_t>(*decision.replace)];
  slot.response = success->response;
  slot.score = success->score;
  slot.replay_of = success->uid;
  ++counters_.replayed_samples;
}

bool JobState::Filter(Group& group, absl::Time now) {
  const std::string_view reason = DecideFilter(options_.filter, RewardsOf(group));
  if (reason.empty()) return false;
  EndGroup(group, LedgerEvent::kFiltered, std::string(reason), "", now);
  ++filtered_in_a_row_;
  const int64_t limit = options_.max_filtered_in_a_row > 0
                            ? options_.max_filtered_in_a_row
                            : 20 * options_.staleness.groups_per_step;
  if (filtered_in_a_row_ < limit || !paused_.empty()) return true;
  paused_ = FilteredText(filtered_in_a_row_);
  Changed(Topic::kBatch);
  return true;
}

}  // namespace freshet
