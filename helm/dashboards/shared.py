"""Panels that several dashboards show, and words that their queries share."""

from panels import curves

# A process' own figures do not say which role it has; freshet_build_info does.
ROLE = "* on (namespace, instance) group_left (role) freshet_build_info{@all}"


def quantile(share, metric, *by):
    """Of a histogram kept to the chosen jobs."""
    return (
        f"histogram_quantile({share}, sum by ({', '.join(('le',) + by)}) "
        f"(rate({metric}_bucket{{@job}}[$__rate_interval])))"
    )


REWARD = curves(
    "Reward",
    "Mean reward of each step's samples. It should rise; a fall that lasts is a collapse.",
    ("avg by (job) (freshet_reward_mean{@job})", "{{job}}"),
    low=None,
)
ACCURACY = curves(
    "Evaluation",
    "Newest result on the held-out rows: the mean reward where the reward is not exact.",
    ("max by (job) (freshet_eval_accuracy_ratio{@job})", "{{job}}"),
    unit="percentunit",
)
STALENESS = curves(
    "Staleness of trained tokens",
    "Age in policy versions. No curve passes the bound, which is an edge of the buckets.",
    (quantile(0.5, "freshet_trajectory_staleness_versions", "job"), "{{job}} p50"),
    (quantile(0.99, "freshet_trajectory_staleness_versions", "job"), "{{job}} p99"),
    ("max by (job) (freshet_staleness_bound_versions{@job})", "{{job}} bound"),
)
WAITS = curves(
    "Who waits",
    "Share of the time that trainers wait for samples and engines for work. Trainers that wait want more "
    "rollouts; engines that idle want fewer, or a larger staleness.max.",
    ("sum by (job) (rate(freshet_trainer_wait_seconds_total{@job}[$__rate_interval]))", "{{job}} trainer"),
    ("avg by (job) (rate(freshet_rollout_idle_seconds_total{@job}[$__rate_interval]))", "{{job}} rollouts"),
    unit="percentunit",
    high=1,
)
GROUPS = curves(
    "Prompt groups by state",
    "Where the work is, prompts that wait for an engine aside. A band that grows shows the stage that does not"
    " keep up.",
    (
        'sum by (state) (freshet_buffer_groups{@job, state=~"requeued|leased|generated|scored|ready|claimed|trained"})',
        "{{state}}",
    ),
    stacked=True,
)
DROPPED = curves(
    "Samples not trained on",
    "Per second, by reason. Under staleness.policy wait none is stale.",
    ("sum by (reason) (rate(freshet_trajectories_dropped_total{@job}[$__rate_interval]))", "{{reason}}"),
    unit="cps",
)
