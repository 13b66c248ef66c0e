#include "rollout/service/rollout_stats.h"

#include <algorithm>

namespace freshet {

void RolloutStats::Add(const RolloutStats& other) {
  RolloutCounters& c = counters;
  const RolloutCounters& o = other.counters;
  c.idle_seconds += o.idle_seconds;
  c.swap_seconds += o.swap_seconds;
  c.tokens_generated += o.tokens_generated;
  c.samples_finished += o.samples_finished;
  c.samples_fenced += o.samples_fenced;
  c.samples_refused += o.samples_refused;
  c.leases_cancelled += o.leases_cancelled;
  c.weight_swaps += o.weight_swaps;
  c.unsent_samples += o.unsent_samples;
  c.store_outages += o.store_outages;
  c.groups_handed_back += o.groups_handed_back;
  c.engine_failures += o.engine_failures;
  if (c.fenced_name.empty()) c.fenced_name = o.fenced_name;
  c.episodes.open += o.episodes.open;
  c.episodes.terminated += o.episodes.terminated;
  c.episodes.truncated += o.episodes.truncated;
  for (const auto& [limit, count] : o.episodes.truncated_by) {
    c.episodes.truncated_by[limit] += count;
  }
  c.episodes.restarted += o.episodes.restarted;
  c.episodes.refused += o.episodes.refused;
  c.episodes.given_up += o.episodes.given_up;
  c.episodes.not_asked += o.episodes.not_asked;
  c.episodes.turns += o.episodes.turns;
  c.episodes.waiting_for_engine += o.episodes.waiting_for_engine;
  c.episodes.waiting_for_environment += o.episodes.waiting_for_environment;
  c.episodes.silent_since = std::min(c.episodes.silent_since, o.episodes.silent_since);
  c.engine.running_sequences += o.engine.running_sequences;
  c.engine.capacity_sequences += o.engine.capacity_sequences;
  c.engine.cache_blocks += o.engine.cache_blocks;
  c.engine.cache_blocks_free += o.engine.cache_blocks_free;
  c.engine.tokens_generated += o.engine.tokens_generated;
  c.engine.tokens_generated_evaluation += o.engine.tokens_generated_evaluation;
  c.engine.tokens_prefilled += o.engine.tokens_prefilled;
  c.engine.tokens_reused += o.engine.tokens_reused;
  c.engine.tokens_drafted += o.engine.tokens_drafted;
  c.engine.tokens_accepted += o.engine.tokens_accepted;
  c.engine.preemptions += o.engine.preemptions;
  c.engine.weight_swaps += o.engine.weight_swaps;
  c.engine.servers_down += o.engine.servers_down;
  c.engine.server_restarts += o.engine.server_restarts;
  version = std::max(version, other.version);
  max_unsent_samples += other.max_unsent_samples;
}

void RolloutStats::ClearGauges() {
  counters.unsent_samples = 0;
  counters.fenced_name.clear();
  counters.episodes.open = 0;
  counters.episodes.waiting_for_engine = 0;
  counters.episodes.waiting_for_environment = 0;
  counters.episodes.silent_since = absl::InfiniteFuture();
  counters.engine.running_sequences = 0;
  counters.engine.capacity_sequences = 0;
  counters.engine.cache_blocks = 0;
  counters.engine.cache_blocks_free = 0;
  counters.engine.servers_down = 0;
  version = -1;
  max_unsent_samples = 0;
}

}  // namespace freshet
