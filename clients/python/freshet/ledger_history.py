"""The history that a ledger tells, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from freshet.ledger_report import LedgerReport
from freshet.ledger_rows import MOST_COUNT, BadRow, checked_sample, count, text

_POLICIES = ("wait", "drop", "requeue", "mask")
_SAMPLES = ("trained", "filtered", "dropped", "requeued", "dead")
_EMPTY_DIGEST = hashlib.sha256(b"").hexdigest()


@dataclasses.dataclass
class _Branch:
    """One lineage: what it inherited, and the digest after each version that it reached."""

    parent: int | None = None
    fork_version: int = 0  # versions above it are not inherited
    # Set when a redo made the lineage: what it inherits stays trained up to fork_version, but its
    # weights come from versions up to this one.
    diverged_from: int | None = None
    epoch: int = 0  # of that redo
    last_version: int = 0
    digests: dict[int, str] = dataclasses.field(default_factory=dict)  # by version, growing

    def digest_at(self, version: int) -> str:
        if version > self.last_version:
            return ""
        below = [at for at in self.digests if at <= version]
        return self.digests[max(below)] if below else ""

    @property
    def digest(self) -> str:
        return next(reversed(self.digests.values()), _EMPTY_DIGEST)


@dataclasses.dataclass
class _PendingRedo:
    """A lineage that a redo made must redo every step before it trains the next one."""

    epoch: int
    step: int
    first: int  # where another epoch begins at the latest
    uids: set[str] = dataclasses.field(default_factory=set)


class History:
    """A training history rebuilt from its rows: the tree of lineages and the digest chain of each."""

    def __init__(self) -> None:
        self.report = LedgerReport()
        self._open = False
        self._last_seq: int | None = None
        self._last_epoch: int | None = None
        self._current = 0
        self._branches: dict[int, _Branch] = {}
        self._pending: _PendingRedo | None = None
        self._durable: dict[tuple[int, int], str] = {}
        self._trained: list[tuple[int, Mapping[str, Any]]] = []
        self._ended: list[tuple[int, Mapping[str, Any]]] = []

    def add(self, number: int, row: str | Mapping[str, Any]) -> None:
        self.report.rows += 1
        try:
            if isinstance(row, str):
                row = json.loads(row)
            if not isinstance(row, Mapping):
                raise BadRow("not a JSON object")
            event = text(row, "event")
            if number == 1 and event != "open":
                self._fault("line 1: the first row is not `open`")
            self._check_order(number, event, row)
            if event == "open":
                self._add_open(number, row)
            elif event == "resumed":
                self._add_resumed(number, row)
            elif event == "durable":
                self._add_durable(number, row)
            elif event in _SAMPLES:
                self._add_sample(number, event, checked_sample(row))
            else:
                raise BadRow(f'key "event" is unknown: "{event[:40]}"')
        except (BadRow, json.JSONDecodeError, RecursionError) as error:
            self._fault(f"line {number}: {error}")

    def finish(self, spec: Any) -> None:
        report = self.report
        report.lineage = self._current
        if not self._open:
            self._fault("no `open` row")
        self._check_steps(self._tally())
        trained = {row["uid"] for _, row in self._trained if self._survives(row)}
        for number, row in self._ended:
            if self._survives(row) and row["uid"] in trained:
                self._fault(
                    f"line {number}: uid {row['uid']} is both trained and dropped, filtered or dead"
                )
        if spec is not None and self._open:
            self._compare(spec)

    def _fault(self, fault: str) -> None:
        self.report.add_violation(fault)

    def _check_order(self, number: int, event: str, row: Mapping[str, Any]) -> None:
        if "seq" in row:
            seq = count(row, "seq")
            if self._last_seq is not None and seq <= self._last_seq:
                self._fault(f"line {number}: seq {seq} does not grow: the last was {self._last_seq}")
            self._last_seq = seq
        if event == "open" or "epoch" not in row:
            return
        epoch = count(row, "epoch")
        if self._last_epoch is not None and epoch < self._last_epoch:
            self._fault(f"line {number}: epoch {epoch} is fenced: epoch {self._last_epoch} has begun")
        self._last_epoch = max(epoch, self._last_epoch or 0)

    def _add_open(self, number: int, row: Mapping[str, Any]) -> None:
        if number != 1:
            self._fault(f"line {number}: a second `open` row")
        if self._open:
            return
        report = self.report
        report.job, report.policy = text(row, "job"), text(row, "disposition")
        report.bound = count(row, "bound")
        report.groups_per_step, report.group_size = count(row, "B"), count(row, "G")
        self._open = True
        if report.groups_per_step < 1 or report.group_size < 1:
            self._fault(f"line {number}: B and G must be at least 1")
        if report.policy not in _POLICIES:
            self._fault(f'line {number}: disposition "{report.policy}" is unknown')

    def _branch(self, lineage: int) -> _Branch | None:
        """The first lineage of the ledger becomes the root; None for one that was never opened."""
        if not self._branches:
            self._current = lineage
            self._branches[lineage] = _Branch(digests={0: _EMPTY_DIGEST})
        return self._branches.get(lineage)

    def _visible(self, lineage: int | None, ancestor: int, weights: bool = False) -> int | None:
        """Highest version of `ancestor` in the history of `lineage`; None when it is none.

        weights: highest version that the lineage's weights come from.
        """
        limit = MOST_COUNT
        while lineage is not None:
            if lineage == ancestor:
                return limit
            branch = self._branches.get(lineage)
            if branch is None:
                return None
            fork = branch.fork_version
            if weights and branch.diverged_from is not None:
                fork = branch.diverged_from
            limit = min(limit, fork)
            lineage = branch.parent
        return None

    def _survives(self, row: Mapping[str, Any]) -> bool:
        limit = self._visible(self._current, row["lineage"])
        return limit is not None and row["train_version"] < limit

    def _add_resumed(self, number: int, row: Mapping[str, Any]) -> None:
        self.report.resumes += 1
        lineage, parent_lineage = count(row, "lineage"), count(row, "parent_lineage")
        fork = count(row, "fork_version") if "fork_version" in row else None
        sha256, digest = text(row, "checkpoint_sha256"), text(row, "digest")
        parent = self._branch(parent_lineage)
        if parent is None:
            self._fault(f"line {number}: resumed from lineage {parent_lineage}, which never was")
            return
        self._check_resumed_digest(number, fork, digest, parent_lineage, parent)
        self._check_resumed_sha256(number, fork, sha256, parent_lineage)
        if fork is None and lineage == parent_lineage:
            return
        if lineage <= max(self._branches):
            self._fault(f"line {number}: lineage {lineage} does not grow")
            return
        self._pending = None
        limit = MOST_COUNT if fork is None else fork
        self._branches[lineage] = _Branch(
            parent=parent_lineage,
            fork_version=limit,
            last_version=min(limit, parent.last_version),
            digests={at: value for at, value in parent.digests.items() if at <= limit},
        )
        self._current = lineage

    def _check_resumed_digest(
        self, number: int, fork: int | None, digest: str, lineage: int, parent: _Branch
    ) -> None:
        if fork is None:
            # A redo names no version: the digest is that of some step boundary of the history.
            if digest not in parent.digests.values():
                self._fault(
                    f"line {number}: digest of the resumed row is {digest[:12]}, which no step of "
                    f"lineage {lineage} ends with"
                )
        elif fork > parent.last_version:
            self._fault(
                f"line {number}: resumed from version {fork}, but lineage {lineage} only reached "
                f"{parent.last_version}"
            )
        elif digest != parent.digest_at(fork):
            self._fault(
                f"line {number}: digest of the resumed row is {digest[:12]}, but the rows up to "
                f"version {fork} give {parent.digest_at(fork)[:12]}"
            )

    def _check_resumed_sha256(
        self, number: int, fork: int | None, sha256: str, parent_lineage: int
    ) -> None:
        if fork is None:
            return
        if not sha256 and fork > 0:
            self._fault(f"line {number}: resumed from version {fork} without a checkpoint_sha256")
        # The checkpoint may have been written by the parent or by a lineage that it inherits from.
        for (lineage, version), durable in sorted(self._durable.items()):
            limit = self._visible(parent_lineage, lineage, weights=True)
            if version != fork or limit is None or version > limit:
                continue
            if durable != sha256:
                self._fault(
                    f"line {number}: resumed from checkpoint {sha256[:12]}, but version {version} is "
                    f"durable as {durable[:12]}"
                )
            return

    def _add_durable(self, number: int, row: Mapping[str, Any]) -> None:
        self.report.durable_versions += 1
        lineage, version = count(row, "lineage"), count(row, "version")
        sha256, digest = text(row, "checkpoint_sha256"), text(row, "digest")
        branch = self._branch(lineage)
        if branch is None:
            self._fault(f"line {number}: durable version {version} of lineage {lineage}, which never was")
            return
        if lineage == self._current:
            self._check_redone(number, f"version {version} is durable")
        elif not self._comes_from(lineage, version):
            self._fault(
                f"line {number}: durable row of superseded lineage {lineage} after lineage "
                f"{self._current} began"
            )
        self._durable[lineage, version] = sha256
        if version > branch.last_version:
            self._fault(
                f"line {number}: version {version} is durable, but only {branch.last_version} steps "
                "are in the ledger"
            )
        elif digest != branch.digest_at(version):
            self._fault(
                f"line {number}: digest of durable version {version} is {digest[:12]}, but the rows "
                f"give {branch.digest_at(version)[:12]}"
            )

    def _add_sample(self, number: int, event: str, row: Mapping[str, Any]) -> None:
        diverges = event == "trained" and self._diverges(number, row)
        if not diverges and (self._branch(row["lineage"]) is None or row["lineage"] != self._current):
            self._fault(
                f"line {number}: row of lineage {row['lineage']} while lineage {self._current} is the "
                "current one"
            )
            return
        report, uid = self.report, row["uid"]
        if self._open and row["sample"] >= report.group_size:
            self._fault(f"line {number}: sample {row['sample']} of uid {uid} is outside its group")
        if event == "trained":
            self._add_trained(number, row)
            return
        reason = text(row, "reason", "")
        if not reason:
            self._fault(f"line {number}: uid {uid} has no reason")
        if event == "requeued":
            report.requeued += 1
            return  # may be trained later
        if event == "dropped":
            # What follows a colon tells of the single case.
            kind = reason.split(":", 1)[0]
            report.dropped[kind] = report.dropped.get(kind, 0) + 1
        elif event == "filtered":
            report.filtered += 1
        else:
            report.dead += 1
        self._ended.append((number, row))

    def _add_trained(self, number: int, row: Mapping[str, Any]) -> None:
        step, at = row["step"], row["train_version"]
        if step != at + 1:
            self._fault(f"line {number}: step {step} trains at version {at}; it must be {step - 1}")
        self._check_spans(number, row)
        self._check_age(number, row)
        branch = self._branches[row["lineage"]]
        if row["redo"]:
            self._add_redo(number, row)
        else:
            self._check_redone(number, f"step {step} is trained")
            if at + 1 < branch.last_version:
                self._fault(f"line {number}: step {step} is trained after step {branch.last_version}")
            digest = hashlib.sha256((branch.digest + row["uid"]).encode()).hexdigest()
            branch.last_version = max(branch.last_version, at + 1)
            branch.digests[branch.last_version] = digest
        self._trained.append((number, row))

    def _diverges(self, number: int, row: Mapping[str, Any]) -> bool:
        """Whether the row begins a lineage by redoing a step with other weights."""
        if not row["redo"] or not self._branches or row["lineage"] != self._current + 1:
            return False
        parent = self._branches[self._current]
        if row["train_version"] >= parent.last_version:
            return False
        if parent.diverged_from is not None and row["epoch"] <= parent.epoch:
            self._fault(
                f"line {number}: lineage {row['lineage']} begins in epoch {row['epoch']}, in which "
                f"lineage {self._current} began"
            )
        self.report.divergences += 1
        child = dataclasses.replace(
            parent,
            parent=self._current,
            fork_version=parent.last_version,
            diverged_from=row["train_version"],
            epoch=row["epoch"],
            digests=dict(parent.digests),
        )
        self._current = row["lineage"]
        self._branches[self._current] = child
        if self._pending is None:
            self._pending = _PendingRedo(child.epoch, row["step"], row["step"])
        self._pending.first = min(self._pending.first, row["step"])
        return True

    def _add_redo(self, number: int, row: Mapping[str, Any]) -> None:
        pending = self._pending
        if pending is None or not self._open:
            return
        full_step = self.report.groups_per_step * self.report.group_size
        step, epoch = row["step"], row["epoch"]
        if epoch != pending.epoch:
            # Another trainer: it has no checkpoint of the lineage that is still being made.
            if step > pending.first:
                self._fault(
                    f"line {number}: epoch {epoch} redoes from step {step}, but lineage "
                    f"{self._current} needs it from step {pending.first}"
                )
            pending = self._pending = _PendingRedo(epoch, step, pending.first)
        elif step != pending.step:
            if step != pending.step + 1 or len(pending.uids) != full_step:
                self._fault(
                    f"line {number}: step {step} of lineage {self._current} is redone after "
                    f"{len(pending.uids)} of {full_step} samples of step {pending.step}"
                )
            pending.step = step
            pending.uids.clear()
        pending.uids.add(row["uid"])
        last = pending.step >= self._branches[self._current].last_version
        if last and len(pending.uids) == full_step:
            self._pending = None

    def _check_redone(self, number: int, what: str) -> None:
        if self._pending is None:
            return
        self._fault(
            f"line {number}: {what} while lineage {self._current} has redone no more than step "
            f"{self._pending.step} of {self._branches[self._current].last_version}"
        )
        self._pending = None

    def _comes_from(self, lineage: int, version: int) -> bool:
        """Whether the current lineage comes from this version, with redos alone between them."""
        at: int | None = self._current
        while at != lineage:
            branch = self._branches.get(at) if at is not None else None
            if branch is None or branch.diverged_from is None or version > branch.diverged_from:
                return False
            at = branch.parent
        return True

    def _check_spans(self, number: int, row: Mapping[str, Any]) -> None:
        uid, end, previous = row["uid"], 0, (0, 0)
        for span in row["spans"]:
            if span["begin"] != end or span["end"] <= span["begin"]:
                self._fault(f"line {number}: spans of uid {uid} are not contiguous at token {end}")
                return
            version = (span["lineage"], span["version"])
            if version < previous:
                self._fault(f"line {number}: spans of uid {uid} go back to version {span['version']}")
            if span["version"] > row["train_version"]:
                self._fault(
                    f"line {number}: uid {uid} has tokens of version {span['version']}, newer than "
                    f"the version {row['train_version']} that trains on it"
                )
            limit = self._visible(row["lineage"], span["lineage"])
            if limit is None or span["version"] > limit:
                self._fault(
                    f"line {number}: uid {uid} has tokens of the orphaned version {span['version']} "
                    f"of lineage {span['lineage']}"
                )
            end, previous = span["end"], version
        if not row["spans"]:
            self._fault(f"line {number}: uid {uid} has no spans")
        if row["loss_tokens"] + row["masked_tokens"] > end:
            self._fault(f"line {number}: uid {uid} has more tokens than its spans")

    def _check_age(self, number: int, row: Mapping[str, Any]) -> None:
        spans, loss_tokens, at = row["spans"], row["loss_tokens"], row["train_version"]
        if not self._open or not spans or loss_tokens == 0:
            return
        # Which tokens bear no loss (masked, or observed) is not in the ledger: the others must fit
        # into the spans from min_version to max_version, and into those within the bound.
        low, high, bound = row["min_version"], row["max_version"], self.report.bound
        versions = {span["version"] for span in spans}
        window = sum(s["end"] - s["begin"] for s in spans if low <= s["version"] <= high)
        young = sum(s["end"] - s["begin"] for s in spans if at - s["version"] <= bound)
        if low not in versions or high not in versions or loss_tokens > window:
            self._fault(
                f"line {number}: min_version {low} and max_version {high} of uid {row['uid']} do not "
                f"agree with its spans, from {min(versions)} to {max(versions)}"
            )
        if at - low > bound or loss_tokens > young:
            oldest = min(versions) if loss_tokens > young else low
            self._fault(
                f"line {number}: uid {row['uid']} trained at version {at} on tokens of version "
                f"{oldest}: staleness above the bound {bound}"
            )

    def _tally(self) -> dict[int, dict[int, list[int]]]:
        """The samples that survive, by step and prompt."""
        report = self.report
        steps: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        uid_step: dict[str, int] = {}
        prompt_step: dict[int, int] = {}
        for number, row in self._trained:
            step, uid, prompt = row["train_version"] + 1, row["uid"], row["prompt"]
            if not self._survives(row):
                report.orphaned_samples += not row["redo"]
                continue
            if row["redo"]:
                if uid_step.get(uid) != step:
                    self._fault(
                        f"line {number}: uid {uid} is redone in step {step}, which never trained on it"
                    )
                continue
            report.trained_samples += 1
            report.trained_tokens += row["loss_tokens"]
            report.masked_tokens += row["masked_tokens"]
            if row["loss_tokens"]:
                age = row["train_version"] - row["min_version"]
                report.max_staleness = max(report.max_staleness, age)
            again = uid in uid_step
            if again:
                self._fault(
                    f"line {number}: uid {uid} is trained in step {step} after it was trained in step "
                    f"{uid_step[uid]}"
                )
            uid_step.setdefault(uid, step)
            if prompt_step.setdefault(prompt, step) != step:
                self._fault(
                    f"line {number}: prompt {prompt} is trained in step {step} after it was trained "
                    f"in step {prompt_step[prompt]}"
                )
            samples = steps[step][prompt]
            if row["sample"] not in samples:
                samples.append(row["sample"])
            elif not again:
                self._fault(
                    f"line {number}: sample {row['sample']} of prompt {prompt} is trained twice in "
                    f"step {step}"
                )
        return steps

    def _check_steps(self, steps: dict[int, dict[int, list[int]]]) -> None:
        report = self.report
        report.steps = len(steps)
        if not self._open:
            return
        previous = 0
        for step in sorted(steps):
            if step != previous + 1:
                self._fault(f"steps {previous + 1}..{step - 1} have no trained rows")
            previous = step
            if len(steps[step]) != report.groups_per_step:
                self._fault(
                    f"step {step} has {len(steps[step])} groups; it must have {report.groups_per_step}"
                )
            for prompt, samples in steps[step].items():
                if len(samples) != report.group_size:
                    self._fault(
                        f"step {step} has {len(samples)} samples of prompt {prompt}; it must have "
                        f"{report.group_size}"
                    )

    def _compare(self, spec: Any) -> None:
        report = self.report
        for key, job, ledger in (
            ("prompts_per_step", spec.prompts_per_step, report.groups_per_step),
            ("group_size", spec.group_size, report.group_size),
            ("staleness.max", spec.staleness.max, report.bound),
            ("staleness.policy", spec.staleness.policy, report.policy),
        ):
            if job != ledger:
                self._fault(f"the job's {key} is {job}, but the ledger was opened with {ledger}")
        if report.steps > spec.trainer.steps:
            self._fault(
                f"the job's trainer.steps is {spec.trainer.steps}, but the ledger holds "
                f"{report.steps} steps"
            )
