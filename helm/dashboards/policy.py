"""Learning progress and the quality of the training data."""

from panels import buckets, curves, dashboard
from shared import ACCURACY, DROPPED, REWARD, quantile

PANELS = [
    REWARD,
    buckets(
        "Rewards",
        "Trained samples per second by reward.",
        "sum by (le) (rate(freshet_reward_bucket{@job}[$__rate_interval]))",
    ),
    ACCURACY,
    curves(
        "Loss",
        "Loss of each step. Sign and size depend on the preset. It must be finite and free of jumps.",
        ("max by (job) (freshet_loss{@job})", "{{job}}"),
        low=None,
    ),
    curves(
        "Gradient norm",
        "Norm before clipping. Growing spikes precede a collapse.",
        ("max by (job) (freshet_grad_norm{@job})", "{{job}}"),
    ),
    curves(
        "Entropy",
        "Nats per token. A fall to 0 while the reward stagnates is a collapse.",
        ("max by (job) (freshet_policy_entropy_nats{@job})", "{{job}}"),
    ),
    curves(
        "KL divergence",
        "Nats per token, relative to the sampling policy (behavior) and to the frozen policy (reference).",
        ("max by (job, kind) (freshet_policy_kl_nats{@job})", "{{job}} {{kind}}"),
        low=None,
    ),
    curves(
        "Log-prob difference",
        "Mean absolute difference in nats between trainer and engine, from staleness and different kernels.",
        ("max by (job) (freshet_logprob_diff{@job})", "{{job}}"),
    ),
    curves(
        "Importance ratios",
        "Probability of trained tokens under the current policy over that under the sampling policy.",
        (quantile(0.01, "freshet_importance_ratio", "job"), "{{job}} p1"),
        (quantile(0.5, "freshet_importance_ratio", "job"), "{{job}} p50"),
        (quantile(0.99, "freshet_importance_ratio", "job"), "{{job}} p99"),
    ),
    curves(
        "Clipped tokens",
        "Share of tokens with a ratio that the loss clipped.",
        ("max by (job) (freshet_clip_ratio{@job})", "{{job}}"),
        unit="percentunit",
    ),
    curves(
        "Importance weight",
        "Mean weight of the off-policy correction. Far from 1, the batch is far off-policy.",
        ("max by (job) (freshet_importance_weight_mean{@job})", "{{job}}"),
    ),
    curves(
        "Group outcomes",
        "Trained groups per second in which all, some or no samples succeeded. Only 'some' gives a gradient.",
        ("sum by (outcome) (rate(freshet_group_solved_total{@job}[$__rate_interval]))", "{{outcome}}"),
        unit="cps",
        stacked=True,
    ),
    curves(
        "Length of trained samples",
        "Tokens per trained sample.",
        (quantile(0.5, "freshet_completion_tokens", "job"), "{{job}} p50"),
        (quantile(0.95, "freshet_completion_tokens", "job"), "{{job}} p95"),
    ),
    curves(
        "Length bias",
        "Mean tokens of trained and of discarded samples. A large difference means a biased selection.",
        (
            (
                "sum by (job, end) (freshet_response_tokens_total{@job}) / (sum by (job, end)"
                " (freshet_response_samples_total{@job}) > 0)"
            ),
            "{{job}} {{end}}",
        ),
    ),
    DROPPED,
    curves(
        "Learning rate",
        "Learning rate of each step.",
        ("max by (job) (freshet_learning_rate{@job})", "{{job}}"),
        unit="sci",
    ),
]
DASHBOARD = dashboard(
    "freshet-policy",
    "Freshet / Policy health",
    "Learning progress and the quality of the training data.",
    PANELS,
    width=6,
)
