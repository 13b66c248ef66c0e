"""From prompt to training step: waiting, staleness, weights."""

from panels import buckets, curves, dashboard
from shared import GROUPS, STALENESS, WAITS, quantile

# Bucket edges that all jobs share; only these can be summed. Newer Prometheus formats 1 as 1.0.
AGES = "(?:0|1|2|3|4|6|8|12|16)(?:[.]0)?|[+]Inf"
UP = ((None, "red"), (1, "green"))
PANELS = [
    WAITS,
    curves(
        "Idle engines",
        "Share of the time in which each rollout had nothing to generate.",
        ("sum by (instance) (rate(freshet_rollout_idle_seconds_total{@job}[$__rate_interval]))", "{{instance}}"),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Step time by phase",
        "Mean seconds of each phase of a training step.",
        (
            (
                "sum by (phase) (rate(freshet_step_phase_seconds_sum{@job}[$__rate_interval])) / "
                "sum by (phase) (rate(freshet_step_phase_seconds_count{@job}[$__rate_interval]))"
            ),
            "{{phase}}",
        ),
        unit="s",
        stacked=True,
    ),
    STALENESS,
    buckets(
        "Ages of trained tokens",
        "Tokens per second by age in policy versions. Ages above 16 share one row.",
        f'sum by (le) (rate(freshet_trajectory_staleness_versions_bucket{{@job, le=~"{AGES}"}}[$__rate_interval]))',
    ),
    curves(
        "Samples of several versions",
        "Share of trained samples that were generated with more than one policy version.",
        (
            (
                '1 - sum by (job) (rate(freshet_trajectory_version_spans_bucket{@job, le="1"}[$__rate_interval])) / '
                "sum by (job) (rate(freshet_trajectory_version_spans_count{@job}[$__rate_interval]))"
            ),
            "{{job}}",
        ),
        unit="percentunit",
        high=1,
    ),
    GROUPS,
    curves(
        "Oldest group by state",
        "Estimated time in seconds of the oldest prompt group in its state, assuming that groups leave in order of"
        " arrival. It grows while no group leaves the state. A single stuck group does not show.",
        ("max by (state) (time() - (freshet_buffer_oldest_timestamp_seconds{@job} > 0))", "{{state}}"),
        unit="s",
    ),
    curves(
        "Time in a state",
        "Mean seconds that a prompt group spends in a state.",
        (
            (
                "sum by (state) (rate(freshet_group_state_seconds_total{@job}[$__rate_interval])) / "
                "(sum by (state) (rate(freshet_groups_entered_total{@job}[$__rate_interval])) > 0)"
            ),
            "{{state}}",
        ),
        unit="s",
    ),
    curves(
        "Groups under way",
        "Groups that count against the staleness bound, and leased ones among them.",
        ("sum by (job) (freshet_outstanding_groups{@job})", "{{job}} outstanding"),
        ("sum by (job) (freshet_stream_pending_entries{@job})", "{{job}} leased"),
    ),
    curves(
        "Queues",
        "Used share of each bounded queue of a job. At 1 its producers wait.",
        (
            "max by (job, queue) (freshet_job_queue_entries{@job} / freshet_job_queue_bound_entries{@job})",
            "{{job}} {{queue}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Versions",
        "Committed by the trainer, and newest and oldest of the engines. Lagging engines get fewer leases.",
        ("max by (job) (freshet_committed_version{@job})", "{{job}} committed"),
        ('max by (job) (freshet_weight_version{@job, role="rollout"})', "{{job}} newest engine"),
        ('min by (job) (freshet_weight_version{@job, role="rollout"})', "{{job}} oldest engine"),
    ),
    curves(
        "Weight publication, p95",
        "Seconds per phase (stage, transfer and activate in the trainer, verify in an engine), and until an engine has"
        " activated the weights, by route. An engine curve far above the others means a slow engine or link.",
        (
            (
                "histogram_quantile(0.95, sum by (le, phase)"
                " (rate(freshet_weight_sync_seconds_bucket{@all}[$__rate_interval])))"
            ),
            "{{phase}}",
        ),
        (quantile(0.95, "freshet_weight_member_seconds", "route"), "engine by {{route}}"),
        unit="s",
    ),
    curves(
        "Weight failures",
        "Engines that missed a publication and failed pulls, in 15 minutes, by cause.",
        ("sum by (cause) (increase(freshet_weight_sync_failures_total{@all}[15m]))", "{{cause}}"),
    ),
    curves(
        "Finished samples",
        "Per second, by outcome: stored, refused because the lease was lost, or refused as invalid. With"
        " adaptive_rollouts, also samples that were not generated, and groups whose samples were limited.",
        ("sum by (outcome) (rate(freshet_rollout_samples_total{@job}[$__rate_interval]))", "{{outcome}}"),
        ("sum(rate(freshet_skipped_samples_total{@job}[$__rate_interval]))", "not generated"),
        ("sum(rate(freshet_limited_groups_total{@job}[$__rate_interval]))", "groups limited"),
        unit="cps",
    ),
    curves(
        "Scores",
        "Per second, by outcome. Timeouts and infrastructure errors are retried and never count as a reward.",
        ("sum by (outcome) (rate(freshet_reward_scores_total{@job}[$__rate_interval]))", "{{outcome}}"),
        unit="cps",
    ),
]
DASHBOARD = dashboard(
    "freshet-pipeline",
    "Freshet / Async pipeline",
    "From prompt to training step: waiting, staleness, weights.",
    PANELS,
    width=6,
)
