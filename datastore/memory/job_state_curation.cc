#include <string_view>
#include <utility>

#include "base/str_cat.h"
#include "datastore/curation_policy.h"
#include "datastore/memory/job_state.h"

namespace freshet {
namespace {

std::vector<double> RewardsOf(const Group& group) {
  std::vector<double> rewards;
  rewards.reserve(group.samples.size());
  for (const SampleSlot& slot : group.samples) rewards.push_back(slot.score->reward);
  return rewards;
}

}  // namespace

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
    const int64_t oldest =
        ComputeLossWindow(options_.BoundOf(/*replayed=*/true), steps_.version(), *kept->response)
            .min_version;
    const std::string uid = SampleUid(options_.job, KeyOf(group, *decision.keep));
    pool_.Add(prompt, {uid, kept->response, kept->score, oldest}, options, steps_.version());
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
