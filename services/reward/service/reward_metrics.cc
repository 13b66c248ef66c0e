#include "services/reward/service/reward_metrics.h"

#include <array>
#include <map>
#include <string>
#include <utility>

namespace freshet {
namespace {

using metrics::CounterFamily;
using metrics::GaugeFamily;
using metrics::HistogramFamily;
using metrics::Labels;

ScoreOutcome OutcomeOf(const absl::Status& status, ScoreOutcome outcome) {
  if (status.ok()) return outcome;
  return status.code() == absl::StatusCode::kDeadlineExceeded ? ScoreOutcome::kTimeout
                                                              : ScoreOutcome::kInfraError;
}

}  // namespace

class RewardMetrics::Job final : public ScoreObserver {
 public:
  Job(prometheus::Registry& registry, const std::string& job)
      : registry_(registry),
        job_(job),
        in_hand_(GaugeFamily(registry, "freshet_reward_scoring_samples",
                             "Samples that are being scored now."),
                 Labels{{"job", job}}),
        seconds_(HistogramFamily(registry, "freshet_reward_score_seconds",
                                 "Seconds to score one sample."),
                 Labels{{"job", job}}, metrics::ShortSeconds()) {
    auto& scored = CounterFamily(registry, "freshet_reward_scores_total",
                                 "Scored samples by outcome; timeouts and infrastructure errors "
                                 "are retried and never count as rewards.");
    for (size_t i = 0; i < kScoreOutcomeNames.size(); ++i) {
      outcomes_[i] = {scored, Labels{{"job", job}, {"outcome", kScoreOutcomeNames[i]}}};
    }
  }

  void OnBegin() override { in_hand_->Increment(); }
  void OnEnd(const absl::Status& status, ScoreOutcome outcome, absl::Duration took) override {
    in_hand_->Decrement();
    if (status.code() == absl::StatusCode::kCancelled) return;  // abandoned, not judged
    seconds_->Observe(absl::ToDoubleSeconds(took));
    outcomes_[static_cast<size_t>(OutcomeOf(status, outcome))]->Increment();
  }
  void OnComponent(const std::string& name, const absl::Status& status, ScoreOutcome outcome,
                   absl::Duration took) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (status.code() == absl::StatusCode::kCancelled) return;
    MutexLock lock(mu_);
    if (components_.size() >= kMaxComponents && !components_.contains(name)) return;
    const auto [component, made] = components_.try_emplace(name);
    if (made) component->second = MakeComponent(name);
    component->second.seconds->Increment(absl::ToDoubleSeconds(took));
    component->second.outcomes[static_cast<size_t>(OutcomeOf(status, outcome))]->Increment();
  }

 private:
  static constexpr size_t kMaxComponents = 64;  // as in a job; callers may name any
  struct Component {
    metrics::CounterSeries seconds;
    std::array<metrics::CounterSeries, kScoreOutcomeNames.size()> outcomes;
  };

  Component MakeComponent(const std::string& name) {
    Component made;
    made.seconds = {CounterFamily(registry_, "freshet_reward_component_seconds_total",
                                  "Seconds that a component took to score samples."),
                    Labels{{"job", job_}, {"component", name}}};
    auto& scored = CounterFamily(registry_, "freshet_reward_component_scores_total",
                                 "Scores of a component by outcome, including cached ones.");
    for (size_t i = 0; i < kScoreOutcomeNames.size(); ++i) {
      made.outcomes[i] = {
          scored, Labels{{"job", job_}, {"component", name}, {"outcome", kScoreOutcomeNames[i]}}};
    }
    return made;
  }

  prometheus::Registry& registry_;
  const std::string job_;
  Mutex mu_;
  std::map<std::string, Component> components_ ABSL_GUARDED_BY(mu_);
  metrics::GaugeSeries in_hand_;
  metrics::HistogramSeries seconds_;
  std::array<metrics::CounterSeries, kScoreOutcomeNames.size()> outcomes_;
};

RewardMetrics::RewardMetrics(prometheus::Registry& registry) : registry_(registry) {}
RewardMetrics::~RewardMetrics() = default;

std::shared_ptr<ScoreObserver> RewardMetrics::Of(const std::string& name) {
  MutexLock lock(mu_);
  std::erase(order_, name);
  order_.push_back(name);
  std::shared_ptr<Job>& job = jobs_[name];
  if (job == nullptr) job = std::make_shared<Job>(registry_, name);
  const std::shared_ptr<ScoreObserver> observer = job;
  // Keeps the observers in use and the most recent of the others.
  size_t unused = 0;
  for (auto it = order_.rbegin(); it != order_.rend();) {
    const std::string other = *it;
    ++it;
    if (jobs_.at(other).use_count() > 1 || ++unused <= metrics::kKeptJobs) continue;
    jobs_.erase(other);
  }
  std::erase_if(order_, [this](const std::string& other)
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !jobs_.contains(other); });
  return observer;
}

void RewardMetrics::WatchCache(const std::string& name, const ScoreCache& cache) {
  auto& family = CounterFamily(registry_, "freshet_reward_cache_requests_total",
                               "Lookups in a score cache, by result.");
  MutexLock lock(mu_);
  caches_.push_back({{family, Labels{{"cache", name}, {"result", "hit"}}},
                     {family, Labels{{"cache", name}, {"result", "miss"}}},
                     &cache});
}

void RewardMetrics::Refresh(const std::map<std::string, RewardStats>& stats) {
  MutexLock lock(mu_);
  for (const Cache& cache : caches_) {
    metrics::RaiseTo(*cache.hits, static_cast<double>(cache.cache->hits()));
    metrics::RaiseTo(*cache.misses, static_cast<double>(cache.cache->misses()));
  }
  std::erase_if(rows_, [&stats](const auto& rows) { return !stats.contains(rows.first); });
  auto& lost = CounterFamily(registry_, "freshet_reward_rows_lost_total",
                             "Rows whose score the datastore did not take: the lease was gone, or "
                             "the worker stopped.");
  auto& errors = CounterFamily(registry_, "freshet_datastore_errors_total",
                               "Calls to the datastore that failed.");
  auto& bound = GaugeFamily(registry_, "freshet_reward_scoring_bound_samples",
                            "Samples that may be scored concurrently.");
  auto& unsent =
      GaugeFamily(registry_, "freshet_reward_unsent_scores", "Scores that wait for the datastore.");
  auto& unsent_bound = GaugeFamily(registry_, "freshet_reward_unsent_bound_scores",
                                   "Limit of scores that wait for the datastore plus samples being "
                                   "scored; at the limit no sample is leased.");
  for (const auto& [job, shown] : stats) {
    const auto [rows, made] = rows_.try_emplace(job);
    const Labels labels = {{"job", job}};
    if (made) {
      rows->second = {{lost, labels},
                      {errors, labels},
                      {bound, labels},
                      {unsent, labels},
                      {unsent_bound, labels}};
    }
    metrics::RaiseTo(*rows->second.lost, static_cast<double>(shown.lost));
    metrics::RaiseTo(*rows->second.store_errors, static_cast<double>(shown.store_errors));
    rows->second.bound->Set(static_cast<double>(shown.parallel));
    rows->second.unsent->Set(static_cast<double>(shown.unsent));
    rows->second.unsent_bound->Set(static_cast<double>(shown.max_in_hand));
  }
}

}  // namespace freshet
