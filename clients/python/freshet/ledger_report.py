"""What was found in a ledger."""

from __future__ import annotations

import dataclasses

_MOST_LISTED = 20


@dataclasses.dataclass
class LedgerReport:
    """What a ledger proves, and how much it holds. Counts are of the history that survives all
    forks, where nothing else is said."""

    job: str = ""
    bound: int = 0  # staleness.max
    policy: str = ""
    groups_per_step: int = 0
    group_size: int = 0
    rows: int = 0  # of the whole ledger
    steps: int = 0
    trained_samples: int = 0
    trained_tokens: int = 0
    masked_tokens: int = 0
    orphaned_samples: int = 0  # trained in a history that did not survive
    max_staleness: int = 0
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)  # by reason; whole ledger
    filtered: int = 0  # whole ledger, as the next two
    requeued: int = 0
    dead: int = 0
    resumes: int = 0
    divergences: int = 0  # redos that gave other weights, and so a new lineage
    durable_versions: int = 0
    lineage: int = 0
    num_violations: int = 0
    violations: list[str] = dataclasses.field(default_factory=list)  # the first ones

    @property
    def ok(self) -> bool:
        return self.num_violations == 0

    def __str__(self) -> str:
        if self.ok:
            return f"ok: every promise holds over {self.rows} rows, {self.steps} steps"
        return "\n".join(
            [f"FAILED: {self.num_violations} violations in {self.rows} rows", *self.violations]
        )

    def add_violation(self, text: str) -> None:
        self.num_violations += 1
        if len(self.violations) < _MOST_LISTED:
            self.violations.append(text)
