"""Reward components, model servers, sandboxes, and environments."""

from panels import curves, dashboard
from shared import quantile

SCORES = "freshet_reward_component_scores_total"
PANELS = [
    curves(
        "Scores by component",
        "Per second, remembered ones included.",
        (f"sum by (job, component) (rate({SCORES}{{@job}}[$__rate_interval]))", "{{job}} {{component}}"),
        unit="cps",
    ),
    curves(
        "Failed scores by component",
        "Share of the scores that were no verdict, by what went wrong. They are tried again and never count as a reward.",
        (
            (
                "sum by (job, component, outcome)"
                f' (rate({SCORES}{{@job, outcome=~"timeout|infra_error"}}[$__rate_interval]))'
                " / on (job, component) group_left"
                f" sum by (job, component) (rate({SCORES}{{@job}}[$__rate_interval]))"
            ),
            "{{job}} {{component}} {{outcome}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Time of a component",
        "Mean seconds of a score, waits for a server or a free process included.",
        (
            (
                "sum by (job, component) (rate(freshet_reward_component_seconds_total{@job}[$__rate_interval]))"
                f" / sum by (job, component) (rate({SCORES}{{@job}}[$__rate_interval]))"
            ),
            "{{job}} {{component}}",
        ),
        unit="s",
    ),
    curves(
        "Cached scores",
        "Share of the lookups of judges, reward models, programs and services that found an equal sample's score.",
        (
            (
                'sum by (cache) (rate(freshet_reward_cache_requests_total{@all, result="hit"}[$__rate_interval]))'
                " / clamp_min(sum by (cache) (rate(freshet_reward_cache_requests_total{@all}[$__rate_interval])), 0.001)"
            ),
            "{{cache}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Used calls",
        "Requests to a judge or reward model as a share of max_calls. A job that needs more than 1 fails.",
        (
            (
                "max by (job, component) (freshet_reward_calls_total{@job})"
                " / max by (job, component) (freshet_reward_bound_calls{@job})"
            ),
            "{{job}} {{component}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Load of model servers",
        "Requests of a pool: waiting for room in the engines, and in all. Pools grow with the latter.",
        ('sum by (pool) (freshet_openai_waiting_requests{@all, role="model"})', "{{pool}} waiting"),
        ('sum by (pool) (freshet_openai_open_requests{@all, role="model"})', "{{pool}} open"),
        ('sum by (pool) (freshet_openai_serving{@all, role="model"})', "{{pool}} ready servers"),
    ),
    curves(
        "Programs per second",
        "Programs that sandboxes have run, and those that a limit ended.",
        ("sum(rate(freshet_sandbox_programs_total{@all}[$__rate_interval]))", "run"),
        ("sum by (limit) (rate(freshet_sandbox_limited_programs_total{@all}[$__rate_interval]))", "limit of {{limit}}"),
        unit="cps",
    ),
    curves(
        "Load of sandboxes",
        "Used share of their workers, and of the places for programs that wait.",
        (
            (
                'sum by (queue, instance) (freshet_queue_entries{@all, queue=~"sandbox_.+"})'
                ' / sum by (queue, instance) (freshet_queue_bound_entries{@all, queue=~"sandbox_.+"})'
            ),
            "{{instance}} {{queue}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Sandbox errors",
        "Programs refused and workers lost, in 15 minutes.",
        ("sum by (instance) (increase(freshet_sandbox_refused_programs_total{@all}[15m]))", "{{instance}} refused"),
        ("sum by (instance) (increase(freshet_sandbox_lost_workers_total{@all}[15m]))", "{{instance}} lost"),
    ),
    curves(
        "Layers of isolation",
        "Sandboxes that have each layer. All must have the same.",
        ("count by (layer) (freshet_sandbox_layer_info{@all} == 1)", "{{layer}}"),
    ),
    curves(
        "Open episodes",
        "By pool, of environment workers and servers, and of rollouts.",
        ("sum by (pool) (freshet_episodes_open{@all})", "environments {{pool}}"),
        ("sum by (job) (freshet_rollout_open_episodes{@job})", "rollouts {{job}}"),
    ),
    curves(
        "Load of environments",
        "Open episodes as a share of those that a worker or server may hold. At 1 it refuses more.",
        (
            (
                'sum by (pool, instance) (freshet_queue_entries{@all, queue="episodes"})'
                ' / sum by (pool, instance) (freshet_queue_bound_entries{@all, queue="episodes"})'
            ),
            "{{pool}} {{instance}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Episodes by environment",
        "Ended per second, by outcome.",
        (
            "sum by (environment, outcome) (rate(freshet_episodes_total{@all}[$__rate_interval])) > 0",
            "{{environment}} {{outcome}}",
        ),
        unit="cps",
    ),
    curves(
        "Episodes of rollouts",
        "Ended per second, by outcome; truncated ones by limit; and groups handed back after repeated failures in 15"
        " minutes.",
        ("sum by (outcome) (rate(freshet_rollout_episodes_total{@job}[$__rate_interval]))", "{{outcome}}"),
        (
            "sum by (limit) (rate(freshet_rollout_truncated_episodes_total{@job}[$__rate_interval]))",
            "truncated: {{limit}}",
        ),
        ("sum(increase(freshet_rollout_groups_handed_back_total{@job}[15m]))", "groups handed back"),
    ),
    curves(
        "Time of an environment, p95",
        "Seconds of one reset or step.",
        (
            (
                "histogram_quantile(0.95, sum by (le, environment)"
                " (rate(freshet_environment_step_seconds_bucket{@all}[$__rate_interval])))"
            ),
            "{{environment}}",
        ),
        unit="s",
    ),
    curves(
        "Turns of an episode",
        "Mean turns of the policy.",
        (
            (
                "sum by (environment) (rate(freshet_episode_turns_sum{@all}[$__rate_interval]))"
                " / sum by (environment) (rate(freshet_episode_turns_count{@all}[$__rate_interval]))"
            ),
            "{{environment}}",
        ),
    ),
]
DASHBOARD = dashboard(
    "freshet-signals", "Freshet / Rewards and environments", "Reward components, model servers, sandboxes, and environments.", PANELS, width=6
)
