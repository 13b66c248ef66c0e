"""What freshet.ledger finds in a ledger. Each test breaks one promise of a good one."""

import copy
import hashlib
import json
import unittest

from freshet import ledger

EMPTY = hashlib.sha256(b"").hexdigest()


def chain(uids):
    digest = EMPTY
    for uid in uids:
        digest = hashlib.sha256((digest + uid).encode()).hexdigest()
    return digest


def opened():
    return {"event": "open", "job": "a", "bound": 1, "disposition": "wait", "B": 2, "G": 2}


def trained(step, prompt, sample, version=None, lineage=0, epoch=1, redo=False):
    version = max(step - 2, 0) if version is None else version
    return {
        "event": "trained", "epoch": epoch, "lineage": lineage, "step": step,
        "train_version": step - 1, "uid": f"a/{prompt}/0/{sample}", "prompt": prompt, "attempt": 0,
        "sample": sample, "redo": redo, "loss_tokens": 4, "masked_tokens": 0,
        "spans": [{"lineage": 0, "version": version, "begin": 0, "end": 4}],
        "min_version": version, "max_version": version,
    }  # fmt: skip


def step_rows(step, **keys):
    return [trained(step, 2 * step + i, s, **keys) for i in range(2) for s in range(2)]


def durable(version, uids, lineage=0):
    return {"event": "durable", "epoch": 1, "lineage": lineage, "version": version,
            "checkpoint_sha256": f"sha-{lineage}-{version}", "digest": chain(uids)}  # fmt: skip


def uids(*steps):
    return [row["uid"] for step in steps for row in step_rows(step)]


def good():
    """Two steps and a checkpoint after the first."""
    return [opened(), *step_rows(1), durable(1, uids(1)), *step_rows(2)]


def numbered(rows):
    rows = copy.deepcopy(rows)
    for seq, row in enumerate(rows, 1):
        row.setdefault("seq", seq)
    return rows


class LedgerTest(unittest.TestCase):
    def assert_ok(self, rows):
        report = ledger.verify(numbered(rows))
        self.assertTrue(report.ok, report)
        return report

    def assert_broken(self, rows, text):
        report = ledger.verify(numbered(rows))
        self.assertFalse(report.ok)
        self.assertTrue(any(text in each for each in report.violations), report)
        self.assertIn("FAILED", str(report))

    def test_a_good_ledger_is_counted(self):
        report = self.assert_ok(good())
        self.assertEqual((report.steps, report.trained_samples, report.trained_tokens), (2, 8, 32))
        self.assertEqual((report.durable_versions, report.max_staleness, report.bound), (1, 1, 1))
        self.assertIn("ok: every promise holds over 10 rows, 2 steps", str(report))

    def test_lines_are_read_too(self):
        self.assertTrue(ledger.verify([json.dumps(row) for row in numbered(good())]).ok)

    def test_a_sample_trained_twice(self):
        rows = good()
        rows[-1] = trained(2, 2, 0)
        self.assert_broken(rows, "uid a/2/0/0 is trained in step 2 after it was trained in step 1")

    def test_a_prompt_trained_twice(self):
        rows = good()
        rows[-1] = {**trained(2, 2, 1), "uid": "a/2/1/1"}
        self.assert_broken(rows, "prompt 2 is trained in step 2 after it was trained in step 1")

    def test_a_group_that_is_not_whole(self):
        self.assert_broken(good()[:-1], "step 2 has 1 samples of prompt 5; it must have 2")

    def test_a_step_that_is_missing(self):
        rows = [row for row in good() if row.get("step") != 1 and row["event"] != "durable"]
        self.assert_broken(rows, "steps 1..1 have no trained rows")

    def test_tokens_above_the_bound(self):
        rows = [*good(), *step_rows(3, version=0)]
        self.assert_broken(rows, "staleness above the bound 1")

    def test_tokens_newer_than_what_trains_on_them(self):
        rows = good()
        rows[-1] = trained(2, 5, 1, version=2)
        self.assert_broken(rows, "newer than the version 1")

    def test_a_sample_both_trained_and_dropped(self):
        dropped = {**trained(2, 4, 0), "event": "dropped", "reason": "stale: 3"}
        self.assert_broken([*good(), dropped], "both trained and dropped")

    def test_dropped_samples_are_counted_by_reason(self):
        dropped = {**trained(3, 9, 0), "event": "dropped", "reason": "stale: 3"}
        self.assertEqual(self.assert_ok([*good(), dropped]).dropped, {"stale": 1})

    def test_a_digest_that_does_not_agree(self):
        self.assert_broken([*good(), durable(2, uids(1))], "digest of durable version 2")

    def test_a_fenced_epoch(self):
        rows = good()
        rows[2]["epoch"] = 5
        self.assert_broken(rows, "epoch 1 is fenced: epoch 5 has begun")

    def test_rows_in_another_order(self):
        rows = numbered(good())
        rows[3]["seq"], rows[4]["seq"] = rows[4]["seq"], rows[3]["seq"]
        self.assert_broken(rows, "does not grow")

    def fork(self, digest=None, sha256="sha-0-1"):
        """Step 2 is orphaned: a trainer went on from version 1."""
        resumed = {
            "event": "resumed", "epoch": 2, "lineage": 1, "parent_lineage": 0, "fork_version": 1,
            "checkpoint_sha256": sha256, "digest": digest or chain(uids(1)),
        }  # fmt: skip
        again = [
            {**trained(2, 7 + i, s, lineage=1, epoch=2)} for i in range(2) for s in range(2)
        ]
        return [*good(), resumed, *again]

    def test_a_fork_orphans_what_came_after_it(self):
        report = self.assert_ok(self.fork())
        self.assertEqual((report.orphaned_samples, report.trained_samples), (4, 8))
        self.assertEqual((report.lineage, report.resumes, report.steps), (1, 1, 2))

    def test_a_fork_with_another_digest_or_checkpoint(self):
        self.assert_broken(self.fork(digest="bad"), "digest of the resumed row")
        self.assert_broken(self.fork(sha256="bad"), "version 1 is durable as sha-0-1")

    def test_rows_of_a_superseded_lineage(self):
        self.assert_broken([*self.fork(), *step_rows(3, epoch=2)], "row of lineage 0 while lineage 1")

    def redo(self, rows):
        resumed = {
            "event": "resumed", "epoch": 2, "lineage": 0, "parent_lineage": 0,
            "checkpoint_sha256": "sha-0-1", "digest": chain(uids(1)),
        }  # fmt: skip
        return [*good(), resumed, *rows]

    def test_a_redo_is_not_trained_twice(self):
        self.assert_ok(self.redo(step_rows(2, epoch=2, redo=True)))
        self.assert_broken(
            self.redo(step_rows(3, epoch=2, redo=True)), "is redone in step 3, which never trained"
        )

    def test_a_redo_with_other_weights_is_a_lineage(self):
        redone = step_rows(2, lineage=1, epoch=2, redo=True)
        report = self.assert_ok(self.redo([*redone, *step_rows(3, lineage=1, epoch=2, version=2)]))
        self.assertEqual((report.divergences, report.lineage, report.steps), (1, 1, 3))
        self.assert_broken(
            self.redo([*redone[:2], *step_rows(3, lineage=1, epoch=2, version=2)]),
            "has redone no more than step 2",
        )

    def test_rows_that_are_none(self):
        for row in ("{", "[]", '{"event": "dance"}', '{"event": "trained", "seq": -1}', "[" * 9999):
            report = ledger.verify([json.dumps(opened()), row])
            self.assertFalse(report.ok, row[:40])
        self.assertFalse(ledger.verify([]).ok)


if __name__ == "__main__":
    unittest.main()
