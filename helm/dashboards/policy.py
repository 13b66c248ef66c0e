"""Does the policy learn, and is what it learns from sound?"""

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
        "Of each step. Its sign and size depend on the preset; it must be finite and without jumps.",
        ("max by (job) (freshet_loss{@job})", "{{job}}"),
        low=None,
    ),
    curves(
        "Gradient norm",
        "Before clipping. Spikes that grow announce a collapse.",
        ("max by (job) (freshet_grad_norm{@job})", "{{job}}"),
    ),
    curves(
        "Entropy",
        "Nats per token. A fall to 0 while the reward stands still is a collapse.",
        ("max by (job) (freshet_policy_entropy_nats{@job})", "{{job}}"),
    ),
    curves(
        "KL divergence",
        "Nats per token: of the policy from the one that sampled (behavior), and from the frozen one (reference).",
        ("max by (job, kind) (freshet_policy_kl_nats{@job})", "{{job}} {{kind}}"),
        low=None,
    ),
    curves(
        "Log-prob difference",
        "Mean size in nats between trainer and engine: the price of age, and of kernels that differ.",
        ("max by (job) (freshet_logprob_diff{@job})", "{{job}}"),
    ),
    curves(
        "Importance ratios",
        "Of trained tokens, policy in training over policy that sampled.",
        (quantile(0.01, "freshet_importance_ratio", "job"), "{{job}} p1"),
        (quantile(0.5, "freshet_importance_ratio", "job"), "{{job}} p50"),
        (quantile(0.99, "freshet_importance_ratio", "job"), "{{job}} p99"),
    ),
    curves(
        "Clipped tokens",
        "Share of the tokens whose ratio the loss clipped.",
        ("max by (job) (freshet_clip_ratio{@job})", "{{job}}"),
        unit="percentunit",
    ),
    curves(
        "Importance weight",
        "Mean weight of the correction; far from 1 the batch is far from the policy.",
        ("max by (job) (freshet_importance_weight_mean{@job})", "{{job}}"),
    ),
    curves(
        "Group outcomes",
        "Trained groups per second: all samples, some, or none with full marks. Only 'some' teaches.",
        ("sum by (outcome) (rate(freshet_group_solved_total{@job}[$__rate_interval]))", "{{outcome}}"),
        unit="cps",
        stacked=True,
    ),
    curves(
        "Length of trained samples",
        "Tokens of a sample.",
        (quantile(0.5, "freshet_completion_tokens", "job"), "{{job}} p50"),
        (quantile(0.95, "freshet_completion_tokens", "job"), "{{job}} p95"),
    ),
    curves(
        "Length bias",
        "Mean tokens of samples that were trained on and of those that were discarded. Far apart, the policy sees a"
        " biased choice.",
        (
            (
                "sum by (job, end) (freshet_response_tokens_total{@job}) / (sum by (job, end)"
                " (freshet_response_samples_total{@job}) > 0)"
            ),
            "{{job}} {{end}}",
        ),
    ),
    DROPPED,
    curves("Learning rate", "Of each step.", ("max by (job) (freshet_learning_rate{@job})", "{{job}}"), unit="sci"),
]
DASHBOARD = dashboard(
    "freshet-policy",
    "Freshet / Policy health",
    "Does the policy learn, and is what it learns from sound?",
    PANELS,
    width=6,
)
