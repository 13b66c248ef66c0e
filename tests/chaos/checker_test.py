#!/usr/bin/env python3
"""The checker finds every kind of violation in synthetic evidence, and none in good evidence."""
import copy
import hashlib
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checker  # noqa: E402

STEPS, GROUPS, SIZE = 3, 2, 2


class Evidence:
    """Synthetic evidence of a correct run."""

    def __init__(self):
        self.job = {"eta": 1, "policy": "wait", "groups_per_step": GROUPS, "group_size": SIZE, "steps": STEPS,
                    "state": "SUCCEEDED"}
        self.ledger = [{"seq": 1, "event": "open"}]
        self.rollout, self.trainer, self.reward, self.controllers, self.time = [], [], [], ([], []), 0
        self.record(0, 1, 1, "RUNNING")
        self.weights = {}
        self.torn = ""  # partial last row of a killed process
        digest = hashlib.sha256(b"").hexdigest()
        self.rollout.append(self.load(0))
        for step in range(1, STEPS + 1):
            samples = []
            for group in range(GROUPS):
                prompt = (step - 1) * GROUPS + group
                self.controllers[0].append({"t": self.tick(), "event": "feed", "prompts": [[prompt, f"p{prompt}"]]})
                self.rollout.append(self.lease("rollout#1", "groups", prompt + 1))
                for index in range(SIZE):
                    uid = f"job/{prompt}/0/{index}"
                    self.rollout.append({"event": "put", "uid": uid, "hash": "h" + uid, "min_version": step - 1, "code": 0})
                    token = 100 + prompt * SIZE + index
                    self.reward.append(self.lease("reward#1", "rows", token))
                    self.reward.append({"event": "score", "uid": uid, "hash": "h" + uid, "token": token, "reward": 0.5,
                                        "outcome": 0, "code": 0})
                    samples.append([uid, "h" + uid, 0.5])
                    self.ledger.append({"seq": len(self.ledger) + 1, "event": "trained", "epoch": 1, "step": step,
                                        "train_version": step - 1, "uid": uid, "prompt": prompt, "redo": False,
                                        "min_version": max(0, step - 2)})
                    digest = hashlib.sha256((digest + uid).encode()).hexdigest()
                    self.weights[uid] = 1
            self.trainer.append({"t": self.tick(), "event": "train", "step": step, "samples": samples})
            self.trainer.append({"t": self.tick(), "event": "commit", "epoch": 1, "step": step, "lineage": 0, "hash": f"w{step}"})
            self.rollout.append(self.load(step))
        self.ledger.append({"seq": len(self.ledger) + 1, "event": "durable", "version": STEPS, "digest": digest})
        self.ledger_durable = self.ledger[-1]
        self.epoch, self.lineage = 1, 0
        self.record(0, 1, 2, "SUCCEEDED")

    def record(self, controller, fence, revision, state, begin=None):
        begin = begin or self.tick()
        self.controllers[controller].append({"t": self.tick(), "event": "record", "id": "job/job", "fence": fence,
                                             "begin": begin, "revision": revision, "state": state})

    def lease(self, worker, kind, token):
        begin = self.tick()
        return {"t": self.tick(), "event": "lease", "kind": kind, "worker": worker, "begin": begin, "tokens": [token]}

    def tick(self):
        self.time += 1
        return self.time

    def load(self, version, epoch=1):
        return {"t": self.tick(), "event": "load", "lineage": 0, "version": version, "epoch": epoch, "hash": f"w{version}"}

    def diverge(self, first, last=STEPS):
        """A new trainer redoes steps and produces different weights."""
        self.epoch += 1
        self.lineage += 1
        self.again(first, last)

    def again(self, first, last=STEPS):
        rows = [row for row in self.ledger if row["event"] == "trained" and not row["redo"]]
        for row in rows:
            if first <= row["step"] <= last:
                self.ledger.append(dict(row, seq=len(self.ledger) + 1, redo=True, epoch=self.epoch, lineage=self.lineage))
        for step in range(first, last + 1):
            self.trainer.append({"t": self.tick(), "event": "commit", "epoch": self.epoch, "step": step,
                                 "lineage": self.lineage, "hash": f"w{self.lineage}/{step}"})
        if last == STEPS:
            self.rollout.append({"t": self.tick(), "event": "load", "lineage": self.lineage, "version": STEPS,
                                 "epoch": self.epoch, "hash": f"w{self.lineage}/{STEPS}"})

    def end(self, uid, event):
        self.ledger.append({"seq": len(self.ledger) + 1, "event": event, "epoch": self.epoch, "uid": uid,
                            "reason": "why"})

    def score(self):
        return next(row for row in self.reward if row["event"] == "score")

    def durable(self, version, lineage):
        self.ledger.append(dict(self.ledger_durable, seq=len(self.ledger) + 1, version=version, lineage=lineage))

    def faults(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "history"))

            def write(name, rows):
                with open(os.path.join(folder, name), "w") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)

            with open(os.path.join(folder, "job.json"), "w") as file:
                json.dump(self.job, file)
            write("ledger.jsonl", self.ledger)
            write("history/rollout-1.jsonl", self.rollout)
            with open(os.path.join(folder, "history/rollout-1.jsonl"), "a") as file:
                file.write(self.torn)
            write("history/trainer-1.jsonl", self.trainer)
            write("history/reward-1.jsonl", self.reward)
            for number, rows in enumerate(self.controllers):
                write(f"history/controller-{number}.jsonl", rows)
            with open(os.path.join(folder, "weights.txt"), "w") as file:
                file.write("uids\n" + "".join(f"{uid} {count}\n" for uid, count in self.weights.items()))
            return checker.check(folder)[0]


class CheckerTest(unittest.TestCase):
    def setUp(self):
        self.run_ = Evidence()

    def expect(self, text):
        faults = self.run_.faults()
        self.assertTrue(any(text in fault for fault in faults), faults)

    def test_good_evidence_has_no_fault(self):
        self.assertEqual(self.run_.faults(), [])

    def test_redo_rows_are_no_second_training(self):
        row = dict(self.run_.ledger[1], seq=len(self.run_.ledger) + 1, redo=True)
        self.run_.ledger.append(row)
        self.assertEqual(self.run_.faults(), [])

    def test_a_redo_with_other_weights_orphans_nothing(self):
        self.run_.diverge(2)
        self.run_.durable(STEPS, 1)
        self.assertEqual(self.run_.faults(), [])

    def test_a_redo_with_other_weights_that_dies_is_redone(self):
        self.run_.diverge(2, 2)
        self.run_.epoch += 1
        self.run_.again(2)
        self.run_.diverge(1)
        self.assertEqual(self.run_.faults(), [])

    def test_a_lineage_without_a_redo(self):
        for row in self.run_.ledger[-3:-1]:
            row["lineage"] = 1
        self.expect("row of lineage 1 while 0 is the current one")

    def test_a_lineage_left_out(self):
        self.run_.lineage = 1
        self.run_.diverge(2)
        self.expect("row of lineage 2 while 0 is the current one")

    def test_two_lineages_of_one_epoch(self):
        self.run_.diverge(2)
        self.run_.epoch -= 1
        self.run_.diverge(2)
        self.expect("epoch 2 began two lineages")

    def test_a_redone_step_that_lacks_a_sample(self):
        self.run_.diverge(2)
        rows = [row for row in self.run_.ledger if row.get("redo")]
        self.run_.ledger.remove(rows[0])
        self.expect("step 3 redone after 3 samples of 2")

    def test_a_lineage_that_is_durable_before_it_is_redone(self):
        self.run_.diverge(2, 2)
        self.run_.durable(STEPS, 1)
        self.expect("version 3 is durable while lineage 1 has redone step 2 of 3")

    def test_a_trainer_that_skips_what_a_dead_one_had_to_redo(self):
        self.run_.diverge(1, 1)
        self.run_.epoch += 1
        self.run_.again(2)
        self.expect("epoch 3 redoes from step 2, not from 1")

    def test_a_replaced_version_that_is_durable_later(self):
        self.run_.diverge(2)
        self.run_.durable(STEPS, 0)
        self.expect("durable 3 of lineage 0: not where lineage 1 comes from")

    def test_a_redone_sample_of_another_step(self):
        self.run_.diverge(2)
        self.run_.ledger[-1]["uid"] = "job/0/0/0"
        self.expect("redone in step 3, which never trained on it")

    def test_a_torn_last_line_is_left_out(self):
        self.run_.torn = '{"event":"put","uid":"job/99'
        self.assertEqual(self.run_.faults(), [])

    def test_an_unfinished_job(self):
        self.run_.job["state"] = "FAILED"
        self.expect("the job ended as FAILED")

    def test_a_sample_trained_twice(self):
        row = copy.deepcopy(self.run_.ledger[1])
        row.update(seq=len(self.run_.ledger) + 1, step=3, train_version=2, min_version=2)
        self.run_.ledger.append(row)
        self.expect("trained in step 1 and in 3")

    def test_a_sample_above_the_bound(self):
        self.run_.ledger[-2]["min_version"] = 0
        self.expect("above the bound")

    def test_an_acknowledged_sample_that_is_lost(self):
        self.run_.rollout.append({"event": "put", "uid": "job/99/0/0", "hash": "x", "min_version": 0, "code": 0})
        self.expect("job/99/0/0: acknowledged, and lost")

    def test_a_refused_sample_may_be_lost(self):
        self.run_.rollout.append({"event": "put", "uid": "job/99/0/0", "hash": "x", "min_version": 0, "code": 9})
        self.assertEqual(self.run_.faults(), [])

    def test_an_acknowledged_sample_whose_group_was_given_up(self):
        uid = "job/99/0/0"
        self.run_.rollout.append({"event": "put", "uid": uid, "hash": "x", "min_version": 0, "code": 0})
        self.run_.end(uid, "requeued")
        self.expect("job/99/0/0: acknowledged, and requeued")
        self.run_.job["policy"] = "requeue"
        self.assertEqual(self.run_.faults(), [])

    def test_an_empty_group_may_be_requeued(self):
        self.run_.end("job/99/0/0", "requeued")
        self.assertEqual(self.run_.faults(), [])

    def test_a_group_that_is_given_up_though_training_waits(self):
        self.run_.end("job/99/0/0", "dead")
        self.expect("job/99/0/0: dead (why), though training waits")

    def test_evidence_that_proves_nothing(self):
        for event, what in (("put", "samples acknowledged"), ("score", "scores put"), ("feed", "prompts fed"),
                            ("record", "records written"), ("load", "versions loaded")):
            self.run_ = Evidence()
            for rows in (self.run_.rollout, self.run_.reward, *self.run_.controllers):
                rows[:] = [row for row in rows if row["event"] != event]
            self.expect(f"no {what}: the evidence proves nothing")

    def test_a_score_of_other_bytes(self):
        self.run_.score()["hash"] = "other"
        self.expect("scored bytes that were not accepted")

    def test_a_reward_that_is_not_deserved(self):
        self.run_.job["reward"] = 0.5
        self.assertEqual(self.run_.faults(), [])
        self.run_.job["reward"] = 1.0
        self.expect("scored 0.5, deserves 1.0")

    def test_a_failure_that_became_a_reward(self):
        self.run_.score()["outcome"] = 3
        self.expect("a failure to score it became a reward")

    def test_a_sample_scored_twice(self):
        self.run_.reward.append(dict(self.run_.score(), token=7))
        self.expect("scored under the leases 100 and 7")

    def test_another_score_in_training(self):
        self.run_.trainer[0]["samples"][0][2] = 0.75
        self.expect("trained with 0.75, scored 0.5")

    def test_training_without_a_score(self):
        self.run_.trainer[0]["samples"][0][2] = None
        self.expect("trained on it without a score")

    def test_a_score_of_a_killed_worker_may_be_missing(self):
        self.run_.reward.remove(self.run_.score())
        self.assertEqual(self.run_.faults(), [])

    def test_a_prompt_with_two_contents(self):
        self.run_.controllers[1].append({"t": self.run_.tick(), "event": "feed", "prompts": [[0, "other"]]})
        self.expect("prompt 0: fed with two contents")

    def test_a_prompt_that_was_never_fed(self):
        self.run_.controllers[0].remove(next(row for row in self.run_.controllers[0] if row["event"] == "feed"))
        self.expect("prompt 0: trained on, and never fed")

    def test_a_revoked_worker_that_takes_a_lease(self):
        before = self.run_.lease("rollout#1", "groups", 50)
        self.run_.controllers[0].append({"t": self.run_.tick(), "event": "revoke", "worker": "rollout#1"})
        self.run_.rollout.append(before)
        self.assertEqual(self.run_.faults(), [])
        self.run_.rollout.append(self.run_.lease("rollout#1", "groups", 51))
        self.expect("rollout#1 took a lease of groups after it was revoked")

    def test_a_token_of_two_workers(self):
        self.run_.rollout.append(self.run_.lease("rollout#2", "groups", 1))
        self.expect("token 1 of groups: held by rollout#1 and by rollout#2")

    def test_a_controller_that_writes_after_its_successor(self):
        late = self.run_.tick()
        self.run_.record(1, 2, 3, "SUCCEEDED")
        self.run_.record(0, 1, 4, "SUCCEEDED", begin=late)  # began before the other write, so it may have come first
        self.assertEqual(self.run_.faults(), [])
        self.run_.record(0, 1, 5, "SUCCEEDED")
        self.expect("wrote job/job under fence 1 after one under 2")

    def test_two_leaders_under_one_fence(self):
        self.run_.record(1, 1, 3, "SUCCEEDED")
        self.expect("fence 1: controller-0.jsonl and controller-1.jsonl both led under it")

    def test_a_revision_written_twice(self):
        self.run_.record(1, 2, 2, "SUCCEEDED")
        self.expect("revision 2: written by controller-0.jsonl and by controller-1.jsonl")

    def test_a_job_that_runs_after_its_end(self):
        self.run_.record(0, 1, 3, "RUNNING")
        self.expect("job/job: SUCCEEDED, and RUNNING at revision 3")

    def test_a_step_with_too_few_groups(self):
        uid = self.run_.ledger[1]["uid"]
        del self.run_.ledger[1]
        del self.run_.weights[uid]
        self.expect("step 1: 3 samples of 2 groups")

    def test_a_blob_that_was_overwritten(self):
        self.run_.trainer[0]["samples"][0][1] = "other"
        self.expect("trained on bytes that were not accepted")

    def test_an_engine_that_goes_back(self):
        self.run_.rollout.append(self.run_.load(1))
        self.expect("loaded version (0, 1) after (0, 3)")

    def test_weights_of_a_zombie(self):
        self.run_.rollout.append(self.run_.load(3, epoch=2))
        self.run_.rollout.append(self.run_.load(3, epoch=1))
        self.expect("of the fenced trainer 1")

    def test_weights_that_were_not_committed(self):
        self.run_.rollout[-1]["hash"] = "other"
        self.expect("weights that were not committed")

    def test_a_version_that_nobody_committed(self):
        self.run_.rollout.append(self.run_.load(STEPS + 1))
        self.expect("loaded before it was committed")

    def test_a_version_published_before_its_commit(self):
        self.run_.trainer[-1]["t"] = self.run_.tick()
        self.expect("loaded before it was committed")

    def test_a_commit_of_a_fenced_trainer(self):
        self.run_.trainer.append(dict(self.run_.trainer[-1], epoch=2))
        self.expect("committed under epoch 2, which was not open")

    def test_a_ledger_that_goes_back_to_a_former_epoch(self):
        self.run_.ledger[1]["epoch"] = 2
        self.expect("of epoch 1 after epoch 2")

    def test_a_sample_twice_in_the_weights(self):
        self.run_.weights["job/0/0/0"] = 2
        self.expect("2 times in the final weights")

    def test_a_sample_missing_in_the_weights(self):
        del self.run_.weights["job/0/0/0"]
        self.expect("in the ledger, but not in the final weights")

    def test_other_weights_than_those_of_an_undisturbed_run(self):
        self.run_.job.update(weights_sha256="a", final_sha256="a")
        self.assertEqual(self.run_.faults(), [])
        self.run_.job.update(final_sha256="b")
        self.expect("the final weights are b, not a")

    def test_weights_of_a_step_without_the_other_ranks(self):
        self.run_.job.update(weights_sha256=None, final_sha256="b")
        self.assertEqual(self.run_.faults(), [])

    def test_a_lost_rank_that_no_event_names(self):
        begin = max(row["t"] for row in self.run_.trainer if row["event"] == "train")
        self.run_.job["ranks"] = {"groups": 1, "killed": [begin + 1], "notices": 0}  # perhaps after the end of the last step
        self.assertEqual(self.run_.faults(), [])
        self.run_.job["ranks"]["killed"] = [begin - 1]
        self.expect("a rank was killed, and no event says so")
        self.run_.job["ranks"]["notices"] = 1
        self.assertEqual(self.run_.faults(), [])

    def test_ranks_that_never_trained(self):
        self.run_.job["ranks"] = {"groups": 0, "killed": [], "notices": 0}
        self.expect("no groups of ranks formed: the evidence proves nothing")

    def test_a_digest_that_disagrees(self):
        self.run_.ledger[-1]["digest"] = "0" * 64
        self.expect("digest differs")


if __name__ == "__main__":
    unittest.main()
