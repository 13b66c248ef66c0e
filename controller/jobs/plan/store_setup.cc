#include "controller/jobs/plan/store_setup.h"

#include <algorithm>

#include "job/job_validator.h"
#include "job/reward_types.h"

namespace freshet {
namespace {

constexpr double kMostLedgerRows = 1e15;  // exact as a Lua number

}  // namespace

StoreOptions MakeStoreOptions(const job::v1::JobSpec& spec, const std::string& job) {
  StoreOptions store;
  store.job = job;
  store.staleness.max = spec.staleness().max();
  const std::string& policy = spec.staleness().policy();
  store.staleness.disposition = policy == "drop"      ? Disposition::kDrop
                                : policy == "requeue" ? Disposition::kRequeue
                                : policy == "mask"    ? Disposition::kMask
                                                      : Disposition::kWait;
  store.staleness.groups_per_step = spec.prompts_per_step();
  store.staleness.max_in_flight = spec.rollout().max_inflight_groups();
  store.group_size = static_cast<int32_t>(spec.group_size());
  store.last_step = spec.trainer().steps();
  store.capacity_groups = CapacityGroups(spec);
  store.max_queued_prompts = spec.datastore().max_queued_prompts();
  store.lease_ttl = absl::Milliseconds(spec.rollout().lease_ttl_ms());
  store.max_row_failures = static_cast<int32_t>(spec.reward().max_attempts());
  if (spec.rollout().has_max_attempts()) {  // absent in jobs accepted by an older version
    store.max_lease_failures = static_cast<int32_t>(spec.rollout().max_attempts());
  }
  if (spec.rollout().has_max_hand_backs()) {
    store.max_hand_backs = static_cast<int32_t>(spec.rollout().max_hand_backs());
  }
  store.max_requeues = static_cast<int32_t>(spec.staleness().max_requeues());
  store.filter.zero_variance = spec.filter().zero_variance();
  const job::v1::Filter& filter = spec.filter();
  if (filter.has_min_mean_reward()) store.filter.min_mean = filter.min_mean_reward();
  if (filter.has_max_mean_reward()) store.filter.max_mean = filter.max_mean_reward();
  if (spec.has_replay()) {
    const job::v1::Replay& replay = spec.replay();
    store.replay = ReplayOptions{replay.max_age(), replay.min_reward(), replay.capacity(),
                                 replay.max_successes()};
  }
  if (spec.has_adaptive_rollouts()) {
    const job::v1::AdaptiveRollouts& adaptive = spec.adaptive_rollouts();
    store.adaptive = AdaptiveOptions{static_cast<int32_t>(adaptive.min_group_size()),
                                     adaptive.min_reward(), adaptive.max_tokens_factor()};
  }
  for (const auto& [name, component] : spec.reward().components()) {
    store.score_whole_groups |= SeesGroup(component);
  }
  store.max_filtered_in_a_row = spec.filter().max_filtered_in_a_row();
  // The ledger is kept for the life of the job. Every sample is trained once; samples of groups
  // that end otherwise or restart are extra.
  constexpr double kRowsPerTrainedSample = 64;
  const double rows = kRowsPerTrainedSample * static_cast<double>(store.last_step) *
                      static_cast<double>(store.staleness.groups_per_step) * store.group_size;
  store.max_ledger_rows = static_cast<int64_t>(
      std::clamp(rows, static_cast<double>(store.max_ledger_rows), kMostLedgerRows));
  return store;
}

}  // namespace freshet
