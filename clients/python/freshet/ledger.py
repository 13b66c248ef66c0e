"""Recomputes the promises of a training run from its ledger.

The rules are those of `freshet ledger verify`, written a second time on purpose: what proves a
run's record must not share code with what writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from freshet.ledger_history import History
from freshet.ledger_report import LedgerReport

__all__ = ["LedgerReport", "verify"]


def verify(rows: Iterable[str | Mapping[str, Any]], spec: Any = None) -> LedgerReport:
    """Judges the rows of a ledger: JSON lines, or objects, oldest first.

    spec: the job's spec (freshet.job.v1.JobSpec), compared with what the ledger was opened with.
    Nothing is raised: whatever is wrong with the rows is a violation in the report.
    """
    history = History()
    for number, row in enumerate(rows, 1):
        history.add(number, row)
    history.finish(spec)
    return history.report
