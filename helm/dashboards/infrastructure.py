"""Processes, calls, datastore, environments."""

from panels import curves, dashboard
from shared import ROLE, quantile

PANELS = [
    curves(
        "Workers",
        "By role and state, as the leading controller sees them.",
        ("sum by (role, state) (freshet_workers{@all}) > 0", "{{role}} {{state}}"),
        stacked=True,
    ),
    curves(
        "Processor time",
        "Processors in use by each process.",
        (
            f"sum by (role, instance) (rate(process_cpu_seconds_total{{@all}}[$__rate_interval]) {ROLE})",
            "{{role}} {{instance}}",
        ),
    ),
    curves(
        "Resident memory",
        "Resident memory of each process, and what it holds on a GPU, by device.",
        (
            (
                f"sum by (role, instance) (process_resident_memory_bytes{{@all}} {ROLE})"
                f" or sum by (role, instance, device) (freshet_gpu_memory_reserved_bytes{{@all}} {ROLE})"
            ),
            "{{role}} {{instance}} {{device}}",
        ),
        unit="bytes",
    ),
    curves(
        "Open files",
        "Open file descriptors as a share of each process' limit.",
        (
            f"sum by (role, instance) (process_open_fds{{@all}} / process_max_fds{{@all}} {ROLE})",
            "{{role}} {{instance}}",
        ),
        unit="percentunit",
    ),
    curves(
        "Age of processes",
        "Seconds since the start. A sawtooth means restarts.",
        (f"sum by (role, instance) ((time() - process_start_time_seconds{{@all}}) {ROLE})", "{{role}} {{instance}}"),
        unit="s",
    ),
    curves(
        "Datastore memory",
        "Memory in use and its limit (0: no limit).",
        ("max(freshet_datastore_memory_used_bytes{@all})", "used"),
        ("max(freshet_datastore_memory_bound_bytes{@all})", "limit"),
        unit="bytes",
    ),
    curves(
        "Datastore trouble",
        "Whether controllers reach the datastore (1: yes); in 15 minutes, outages seen by rollouts and failed calls of"
        " reward workers.",
        ("min(freshet_datastore_up{@all})", "up"),
        ("sum(increase(freshet_datastore_outages_total{@job}[15m]))", "outages (rollouts)"),
        ("sum(increase(freshet_datastore_errors_total{@job}[15m]))", "failed calls (rewards)"),
    ),
    curves(
        "Held for the datastore",
        "Finished samples of rollouts and rows of trainers that could not be stored yet.",
        ("sum by (instance) (freshet_rollout_unsent_samples{@job})", "{{instance}} samples"),
        ("sum by (instance) (freshet_trainer_unsent_rows{@job})", "{{instance}} rows"),
    ),
    curves(
        "Calls per second",
        "gRPC calls answered, by service.",
        ("sum by (grpc_service) (rate(freshet_grpc_server_handled_total{@all}[$__rate_interval]))", "{{grpc_service}}"),
        unit="reqps",
    ),
    curves(
        "Calls that failed",
        "Share of answered calls with a status other than OK.",
        (
            (
                "1 - sum by (grpc_service) (rate(freshet_grpc_server_handled_total{@all,"
                ' grpc_code="OK"}[$__rate_interval])) / (sum by (grpc_service)'
                " (rate(freshet_grpc_server_handled_total{@all}[$__rate_interval])) > 0)"
            ),
            "{{grpc_service}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Call time, p95",
        "Seconds from the start of a call to its status. Streams are long-lived.",
        (
            (
                "histogram_quantile(0.95, sum by (le, grpc_service)"
                " (rate(freshet_grpc_server_handling_seconds_bucket{@all}[$__rate_interval])))"
            ),
            "{{grpc_service}}",
        ),
        unit="s",
    ),
    curves(
        "Queues of processes",
        "Used share of each bounded queue.",
        (
            "max by (queue, instance) (freshet_queue_entries{@all} / freshet_queue_bound_entries{@all})",
            "{{instance}} {{queue}}",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Engines",
        "Used share of the KV cache, and running samples as a share of the maximum.",
        ("max by (instance) (freshet_kv_cache_used_ratio{@job})", "{{instance}} cache"),
        (
            (
                "sum by (instance) (freshet_rollout_running_sequences{@job}) / "
                "(sum by (instance) (freshet_rollout_bound_sequences{@job}) > 0)"
            ),
            "{{instance}} samples",
        ),
        unit="percentunit",
        high=1,
    ),
    curves(
        "Time of a score",
        "Seconds to score one sample.",
        (quantile(0.5, "freshet_reward_score_seconds", "job"), "{{job}} p50"),
        (quantile(0.95, "freshet_reward_score_seconds", "job"), "{{job}} p95"),
        unit="s",
    ),
    curves(
        "Episodes",
        "Episodes of environment workers: ended per second by outcome, and open ones.",
        ("sum by (outcome) (rate(freshet_episodes_total{@all}[$__rate_interval]))", "{{outcome}}"),
        ("sum(freshet_episodes_open{@all})", "open"),
    ),
    curves(
        "Calls denied by policy",
        "Denied calls per second by process, and rejected changes of policy files in 15 minutes.",
        ("sum by (instance) (rate(freshet_authz_denied_total{@all}[$__rate_interval]))", "{{instance}}"),
        ('sum(increase(freshet_authz_reloads_total{@all, result="error"}[15m]))', "broken policy files"),
    ),
]
DASHBOARD = dashboard(
    "freshet-infrastructure", "Freshet / Infrastructure", "Processes, calls, datastore, environments.", PANELS, width=6
)
