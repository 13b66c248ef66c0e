#include "rollout/service/rollout_metrics.h"

#include <vector>

namespace freshet {
namespace {

using metrics::Labels;

constexpr char kIdleHelp[] = "Seconds that rollout engines had nothing to generate.";
constexpr char kSwapHelp[] = "Seconds that engines spent loading new weights.";
constexpr char kTokensHelp[] = "Tokens by phase.";
constexpr char kDraftsHelp[] =
    "Tokens that speculative decoding drafted, by result: accepted, as the samples have them, or "
    "rejected.";
constexpr char kSamplesHelp[] =
    "Finished samples by result: stored, refused because the lease was lost (fenced), or rejected "
    "as invalid.";
constexpr char kEpisodesHelp[] =
    "Episodes that this engine played, by outcome; restarted: started over elsewhere; refused: all "
    "workers were full.";
constexpr char kTruncatedHelp[] =
    "Truncated episodes by limit: environment (or the agent), turns, time, cost, episode_tokens, "
    "tokens (of a conversation), conversations.";
constexpr char kVersionHelp[] = "Policy version: committed by the trainer, or held by an engine.";

}  // namespace

class RolloutMetrics::Job {
 public:
  Job(prometheus::Registry& registry, const std::string& job)
      : registry_(registry), labels_({{"job", job}}) {}

  void Show(const RolloutStats& stats) {
    const RolloutCounters& c = stats.counters;
    place_ = 0;
    Count("freshet_rollout_idle_seconds_total", kIdleHelp, c.idle_seconds);
    Count("freshet_weight_swap_seconds_total", kSwapHelp, c.swap_seconds);
    Count("freshet_weight_swaps_total", "Versions of weights that engines have loaded.",
          static_cast<double>(c.weight_swaps));
    Count("freshet_tokens_total", kTokensHelp, Number(c.tokens_generated), "phase", "generated");
    Count("freshet_tokens_total", kTokensHelp, Number(c.engine.tokens_prefilled), "phase",
          "prompt");
    Count("freshet_tokens_total", kTokensHelp, Number(c.engine.tokens_reused), "phase", "reused");
    Count("freshet_tokens_total", kTokensHelp, Number(c.engine.tokens_generated_evaluation),
          "phase", "evaluation");
    Count("freshet_rollout_samples_total", kSamplesHelp, Number(c.samples_finished), "outcome",
          "put");
    Count("freshet_rollout_samples_total", kSamplesHelp, Number(c.samples_fenced), "outcome",
          "fenced");
    Count("freshet_rollout_samples_total", kSamplesHelp, Number(c.samples_refused), "outcome",
          "refused");
    Count("freshet_rollout_leases_cancelled_total",
          "Leases of prompt groups that were lost while they were generated.",
          Number(c.leases_cancelled));
    Count("freshet_rollout_groups_handed_back_total",
          "Prompt groups handed back because their environment failed.",
          Number(c.groups_handed_back));
    Count("freshet_rollout_engine_failures_total",
          "Failures of the engine, or of single requests in it.", Number(c.engine_failures));
    Count("freshet_rollout_engine_restarts_total",
          "Times that the engine's inference server was lost and restarted.",
          Number(c.engine.server_restarts));
    const char* drafts = "freshet_rollout_draft_tokens_total";
    Count(drafts, kDraftsHelp, Number(c.engine.tokens_accepted), "outcome", "accepted");
    Count(drafts, kDraftsHelp, Number(c.engine.tokens_drafted - c.engine.tokens_accepted),
          "outcome", "rejected");
    Count("freshet_rollout_preemptions_total",
          "Prompt groups whose KV cache was taken for older ones, to be computed again.",
          Number(c.engine.preemptions));
    Count("freshet_datastore_outages_total", "Outages of the datastore.", Number(c.store_outages));
    Gauge("freshet_rollout_unsent_samples", "Finished samples that wait for the datastore.",
          Number(c.unsent_samples));
    Gauge("freshet_rollout_unsent_bound_samples",
          "Limit of finished samples that wait for the datastore; at the limit generation stops.",
          Number(stats.max_unsent_samples));
    Gauge("freshet_rollout_fenced", "1 while the datastore refuses this worker's name, else 0.",
          c.fenced_name.empty() ? 0 : 1);
    ShowEngine(c.engine);
    ShowEpisodes(c.episodes);
    if (stats.version >= 0) version_ = stats.version;
    Gauge("freshet_weight_version", kVersionHelp, Number(version_), "role", "rollout");
  }

 private:
  static double Number(int64_t value) { return static_cast<double>(value); }

  void ShowEngine(const EngineStats& engine) {
    Gauge("freshet_rollout_running_sequences", "Samples that are being generated.",
          Number(engine.running_sequences));
    Gauge("freshet_rollout_bound_sequences", "Samples that can be generated concurrently.",
          Number(engine.capacity_sequences));
    Gauge("freshet_rollout_engine_down",
          "1 while the engine's inference server cannot generate, because it starts; else 0.",
          Number(engine.servers_down));
    const double used = Number(engine.cache_blocks - engine.cache_blocks_free);
    Gauge("freshet_kv_cache_used_ratio", "Share of the KV cache's blocks that are in use.",
          engine.cache_blocks > 0 ? used / Number(engine.cache_blocks) : 0);
  }

  void ShowEpisodes(const EpisodeCounters& episodes) {
    const char* name = "freshet_rollout_episodes_total";
    Count(name, kEpisodesHelp, Number(episodes.terminated), "outcome", "terminated");
    Count(name, kEpisodesHelp, Number(episodes.truncated), "outcome", "truncated");
    Count(name, kEpisodesHelp, Number(episodes.restarted), "outcome", "restarted");
    Count(name, kEpisodesHelp, Number(episodes.refused), "outcome", "refused");
    Count(name, kEpisodesHelp, Number(episodes.given_up), "outcome", "given_up");
    for (size_t i = 0; i < kEpisodeLimitNames.size(); ++i) {
      const auto found = episodes.truncated_by.find(static_cast<EpisodeLimit>(i));
      const int64_t count = found == episodes.truncated_by.end() ? 0 : found->second;
      Count("freshet_rollout_truncated_episodes_total", kTruncatedHelp, Number(count), "limit",
            kEpisodeLimitNames[i]);
    }
    Count("freshet_rollout_not_asked_episodes_total",
          "Episodes that ended without asking the policy; their samples bear no loss.",
          Number(episodes.not_asked));
    Count("freshet_rollout_episode_turns_total", "Turns of the policy in episodes that ended.",
          Number(episodes.turns));
    Gauge("freshet_rollout_open_episodes", "Episodes that are being played.",
          Number(episodes.open));
  }

  Labels With(const char* label, const char* value) const {
    Labels labels = labels_;
    if (*label != '\0') labels[label] = value;
    return labels;
  }
  // A Show makes its calls in a fixed order, so the n-th call always refers to the same series.
  void Count(const char* name, const char* help, double total, const char* label = "",
             const char* value = "") {
    if (place_ == series_.size()) {
      series_.push_back({{metrics::CounterFamily(registry_, name, help), With(label, value)}, {}});
    }
    metrics::RaiseTo(*series_[place_++].counter, total);
  }
  void Gauge(const char* name, const char* help, double now, const char* label = "",
             const char* value = "") {
    if (place_ == series_.size()) {
      series_.push_back({{}, {metrics::GaugeFamily(registry_, name, help), With(label, value)}});
    }
    series_[place_++].gauge->Set(now);
  }

  struct One {
    metrics::CounterSeries counter;
    metrics::GaugeSeries gauge;
  };
  prometheus::Registry& registry_;
  const Labels labels_;
  size_t place_ = 0;
  std::vector<One> series_;
  int64_t version_ = 0;
};

RolloutMetrics::RolloutMetrics(prometheus::Registry& registry) : registry_(registry) {}
RolloutMetrics::~RolloutMetrics() = default;

void RolloutMetrics::Show(const std::map<std::string, RolloutStats>& stats) {
  std::erase_if(jobs_, [&stats](const auto& job) { return !stats.contains(job.first); });
  for (const auto& [name, shown] : stats) {
    std::unique_ptr<Job>& job = jobs_[name];
    if (job == nullptr) job = std::make_unique<Job>(registry_, name);
    job->Show(shown);
  }
}

}  // namespace freshet
