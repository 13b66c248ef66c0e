"""Panels and query parts that several dashboards share."""

from panels import curves

# Adds the label role, which process metrics lack, from freshet_build_info.
ROLE = "* on (namespace, instance) group_left (role) freshet_build_info{@all}"


def quantile(share, metric, *by):
    """A quantile query of a histogram, filtered by the chosen jobs."""
    return (
        f"histogram_quantile({share}, sum by ({', '.join(('le',) + by)}) "
        f"(rate({metric}_bucket{{@job}}[$__rate_interval])))"
    )


REWARD = curves(
    "Reward",
    "Mean reward of the samples of each step. It should rise; a lasting fall is a collapse.",
    ("avg by (job) (freshet_reward_mean{@job})", "{{job}}"),
    low=None,
)
ACCURACY = curves(
    "Evaluation",
    "Latest result on held-out rows: accuracy, or mean reward if the reward is not exact-match.",
    ("max by (job, eval_name) (freshet_eval_accuracy_ratio{@job})", "{{job}} {{eval_name}}"),
    unit="percentunit",
)
STALENESS = curves(
    "Staleness of trained tokens",
    "Age in policy versions. No curve exceeds the bound, which is a bucket edge.",
    (quantile(0.5, "freshet_trajectory_staleness_versions", "job"), "{{job}} p50"),
    (quantile(0.99, "freshet_trajectory_staleness_versions", "job"), "{{job}} p99"),
    ("max by (job) (freshet_staleness_bound_versions{@job})", "{{job}} bound"),
)
WAITS = curves(
    "Who waits",
    "Share of the time that trainers wait for samples and engines for work. If trainers wait, add rollouts; if "
    "engines idle, remove some or raise staleness.max.",
    ("sum by (job) (rate(freshet_trainer_wait_seconds_total{@job}[$__rate_interval]))", "{{job}} trainer"),
    ("avg by (job) (rate(freshet_rollout_idle_seconds_total{@job}[$__rate_interval]))", "{{job}} rollouts"),
    unit="percentunit",
    high=1,
)
GROUPS = curves(
    "Prompt groups by state",
    "Prompt groups per stage, without queued prompts. A growing band shows the stage that does not keep up.",
    (
        'sum by (state) (freshet_buffer_groups{@job, state=~"requeued|leased|generated|scored|ready|claimed|trained"})',
        "{{state}}",
    ),
    stacked=True,
)
DROPPED = curves(
    "Samples not trained on",
    "Per second, by reason. With staleness.policy wait none are stale.",
    ("sum by (reason) (rate(freshet_trajectories_dropped_total{@job}[$__rate_interval]))", "{{reason}}"),
    unit="cps",
)
