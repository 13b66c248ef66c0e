"""Cluster health, learning progress, and where the pipeline waits."""

from panels import curves, dashboard, number
from shared import ACCURACY, DROPPED, GROUPS, REWARD, STALENESS, WAITS

UP = ((None, "red"), (1, "green"))
PANELS = [
    number("Jobs running", "Jobs in state RUNNING.", ('sum(freshet_job_state{@all, state="RUNNING"})', "")),
    number(
        "Controllers leading",
        "Must be exactly 1.",
        ("sum(freshet_controller_leading{@all})", ""),
        steps=((None, "red"), (1, "green"), (2, "red")),
    ),
    number(
        "Datastore",
        "1 while every controller reaches the datastore.",
        ("min(freshet_datastore_up{@all})", ""),
        steps=UP,
    ),
    number(
        "Workers ready",
        "Registered workers, by role.",
        ('sum by (role) (freshet_workers{@all, state="ready"})', "{{role}}"),
        width=12,
    ),
    REWARD,
    ACCURACY,
    STALENESS,
    WAITS,
    curves(
        "Tokens per second",
        "Prompt tokens processed, tokens generated for training and evaluation, tokens trained.",
        ("sum by (phase) (rate(freshet_tokens_total{@job}[$__rate_interval]))", "{{phase}}"),
        unit="cps",
    ),
    curves(
        "Steps per minute",
        "Committed training steps.",
        ("60 * sum by (job) (rate(freshet_steps_total{@job}[$__rate_interval]))", "{{job}}"),
    ),
    GROUPS,
    DROPPED,
    curves(
        "Stalled for",
        "Seconds without progress; 0 while a job progresses. `freshet describe JOB` shows the blocking edge.",
        ("max by (job) (freshet_job_stalled_seconds{@job})", "{{job}}"),
        unit="s",
    ),
    curves(
        "Rollouts wanted and ready",
        "Wanted replicas (autoscaler or manual) and ready workers, by pool.",
        ("max by (pool) (freshet_rollout_wanted_replicas{@all})", "{{pool}} wanted"),
        ("max by (pool) (freshet_pool_ready_workers{@all})", "{{pool}} ready"),
    ),
    curves(
        "Group outcomes",
        "Share of trained groups in which all, some or no samples succeeded. Only 'some' gives a gradient.",
        (
            (
                "sum by (outcome) (rate(freshet_group_solved_total{@job}[$__rate_interval])) "
                "/ on () group_left sum(rate(freshet_group_solved_total{@job}[$__rate_interval]))"
            ),
            "{{outcome}}",
        ),
        unit="percentunit",
        high=1,
        stacked=True,
    ),
    curves(
        "Workers lost or failing, leases returned",
        "Workers without heartbeats, work that ended with an error, and leases that expired or were revoked, in 15"
        " minutes.",
        ("sum by (role) (increase(freshet_workers_lost_total{@all}[15m]))", "lost {{role}}"),
        ("sum by (role) (increase(freshet_work_failures_total{@all}[15m]))", "failed {{role}}"),
        ("sum(increase(freshet_leases_expired_total{@job}[15m]))", "leases"),
    ),
]
DASHBOARD = dashboard(
    "freshet-overview", "Freshet / Overview", "Cluster health, learning progress, and where the pipeline waits.", PANELS
)
