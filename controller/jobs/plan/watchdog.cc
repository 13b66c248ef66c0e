#include "controller/jobs/plan/watchdog.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/str_cat.h"

namespace freshet {
namespace {

bool IsKnownEdge(const std::string& edge) {
  return std::any_of(std::begin(kBlockingEdges), std::end(kBlockingEdges),
                     [&edge](const char* known) { return edge == known; });
}

// Of a group that died of score_failed, see RewardWorker: "score_failed: 3 times: infra_error:
// ...".
std::optional<FailingComponent> FailingComponentIn(const std::string& reason) {
  constexpr std::string_view kInfraError = " times: infra_error: ";
  const size_t at = reason.find(kInfraError);
  if (!reason.starts_with("score_failed: ") || at == std::string::npos) return std::nullopt;
  return ParseFailingComponent(reason.substr(at + kInfraError.size()));
}

Blockage Because(const char* edge, std::string text) { return {false, edge, std::move(text)}; }

// The store's explanation of the current step.
std::string StoreText(const JobHealth& health) {
  return health.explanation.has_value() ? StrCat("; ", health.explanation->text) : "";
}

std::string ErrorOf(const JobHealth& health, cluster::v1::Role role) {
  const auto found = health.errors.find(role);
  return found == health.errors.end() ? "" : found->second;
}

// No environment has answered for so long that the job waits for an environment, not for its
// rollouts.
bool EnvironmentSilent(const JobHealth& health, absl::Duration patience) {
  return !health.env_waits.empty() && health.env_silence >= patience / 2;
}

Blockage Name(const JobHealth& health, absl::Duration patience) {
  if (health.paused) return Because("paused", "paused on request");
  if (!health.store_error.empty()) return Because("datastore", health.store_error);
  if (health.trainers == 0) {
    return Because("trainer", health.trainer_lost.empty() ? "no trainer is assigned to the job"
                                                          : health.trainer_lost);
  }
  if (health.trainer_starts) {
    return Because("trainer",
                   health.trainer_waits.empty() ? "the trainer starts" : health.trainer_waits);
  }
  if (health.trainer_done) {
    std::string text = "the last evaluation is running";
    if (EnvironmentSilent(health, patience)) text += StrCat("; ", health.env_waits);
    return Because("evaluation", std::move(text));
  }
  if (health.all_steps) {
    return Because("trainer", StrCat("all steps are done; ", health.trainer_waits.empty()
                                                                 ? "the trainer saves them"
                                                                 : health.trainer_waits));
  }
  const std::string edge = health.explanation.has_value() ? health.explanation->edge : "";
  const std::string rollout_error = ErrorOf(health, cluster::v1::ROLE_ROLLOUT);
  const std::string reward_error = ErrorOf(health, cluster::v1::ROLE_REWARD);
  const std::string env_error = ErrorOf(health, cluster::v1::ROLE_ENV);
  // A missing worker matters only once the step depends on it.
  if (health.rollouts == 0 && edge != "trainer" && edge != "reward") {
    return Because(
        "rollout",
        StrCat("pool ", health.pool, ": 0 rollouts ",
               health.engine == "native" ? "" : "with engine " + health.engine + " ", "ready",
               rollout_error.empty() ? "" : "; ", rollout_error, StoreText(health)));
  }
  if (health.needs_env && health.envs == 0 && edge != "trainer" && edge != "reward") {
    return Because("env", StrCat("0 environment workers ready", StoreText(health)));
  }
  if (edge == "reward" && health.rewards == 0) {
    return Because("reward", StrCat("0 reward workers ready", StoreText(health)));
  }
  if (edge == "reward" && !reward_error.empty()) {
    return Because("reward", StrCat(reward_error, StoreText(health)));
  }
  // If samples cannot be stored, it looks as if none were generated; training goes on meanwhile.
  if (!health.store_full.empty() && edge != "trainer") {
    return Because("datastore", StrCat(health.store_full, StoreText(health)));
  }
  if (edge == "rollout" && !rollout_error.empty()) {
    return Because("rollout", StrCat(rollout_error, StoreText(health)));
  }
  if (edge == "rollout" && !env_error.empty()) {
    return Because("env", StrCat(env_error, StoreText(health)));
  }
  if (edge == "rollout" && EnvironmentSilent(health, patience)) {
    return Because("env", StrCat(health.env_waits, StoreText(health)));
  }
  if (health.explanation.has_value()) {
    Blockage blockage{false, IsKnownEdge(edge) ? edge : "store", health.explanation->text};
    if (edge == "trainer" && !health.trainer_waits.empty()) {
      blockage.text += StrCat("; the trainer: ", health.trainer_waits);
    }
    if (edge == "rollout" && !health.rollout_waits.empty()) {
      blockage.text += StrCat("; ", health.rollout_waits);
    }
    if (edge == "reward" && !health.reward_waits.empty()) {
      blockage.text += StrCat("; ", health.reward_waits);
    }
    return blockage;
  }
  return Because("trainer",
                 health.trainer_waits.empty() ? "the trainer starts" : health.trainer_waits);
}

}  // namespace

Blockage FindBlockage(const JobHealth& health, absl::Duration patience) {
  Blockage blockage = Name(health, patience);
  blockage.stalled = !health.paused && health.since_progress >= patience;
  return blockage;
}

int64_t ProgressMark(const StoreStats& stats) {
  // Refused puts and groups that return to the queue are not progress: an engine that keeps getting
  // lost requeues forever.
  int64_t mark = stats.samples_put + stats.committed_version;
  for (int state = 0; state < kNumGroupStates; ++state) {
    const auto name = static_cast<GroupState>(state);
    if (name == GroupState::kQueued || name == GroupState::kLeased ||
        name == GroupState::kRequeued) {
      continue;
    }
    mark += stats.transitions[state];
  }
  return mark;
}

std::string DeathWatch::FailingComponentOf(const std::vector<DeadLetter>& newest,
                                           int64_t scored) const {
  if (std::ssize(scored_at_death_) < kMostDeadInARow || std::ssize(newest) < kMostDeadInARow ||
      scored - scored_at_death_.front() > kMostScoredPerDeath * kMostDeadInARow) {
    return "";
  }
  const auto last = FailingComponentIn(newest.front().reason);
  const auto first = FailingComponentIn(newest[kMostDeadInARow - 1].reason);
  // Each death needs a failure at least, so fewer mean that it gave values meanwhile.
  if (!last.has_value() || !first.has_value() ||
      last->failures - first->failures < kMostDeadInARow - 1) {
    return "";
  }
  const bool all = std::all_of(newest.begin(), newest.begin() + kMostDeadInARow,
                               [&last](const DeadLetter& letter) {
                                 const auto failing = FailingComponentIn(letter.reason);
                                 return failing.has_value() && failing->name == last->name;
                               });
  return all ? last->name : "";
}

std::string DeathWatch::Check(const StoreStats& stats, const std::vector<DeadLetter>& newest) {
  const int64_t scored = stats.transitions[static_cast<size_t>(GroupState::kScored)];
  const int64_t dead = stats.transitions[static_cast<size_t>(GroupState::kDead)];
  if (dead_seen_ < 0) dead_seen_ = dead;
  for (int64_t i = std::min(dead - std::exchange(dead_seen_, dead), kMostDeadInARow); i > 0; --i) {
    scored_at_death_.push_back(scored_seen_);
    if (std::ssize(scored_at_death_) > kMostDeadInARow) scored_at_death_.pop_front();
  }
  if (scored != scored_seen_) {
    scored_seen_ = scored;
    dead_before_ = dead;
  }
  if (const std::string component = FailingComponentOf(newest, scored); !component.empty()) {
    return StrCat("component ", component, " of the reward always fails: the last ",
                  kMostDeadInARow, " prompt groups that died did so because of it");
  }
  if (dead - dead_before_ < kMostDeadInARow) return "";
  std::string last;
  int64_t most = 0;
  for (const auto& [label, groups] : stats.ended_by_reason) {
    if (!label.starts_with("dead(") || groups <= most) continue;
    last = label;
    most = groups;
  }
  return StrCat("the last ", dead - dead_before_,
                " prompt groups died and none could be scored; most of them: ", last);
}

}  // namespace freshet
