"""The client against a real cluster."""

import importlib.util
import json
import threading
import unittest

import freshet
from cluster_case import REPOSITORY, SECONDS, ClusterCase

SMOKE = REPOSITORY / "examples" / "smoke.yaml"
SHORT = {"trainer.steps": 6, "checkpoint.every_steps": 2, "eval.every_steps": 3, "prompts_per_step": 8}


class ClientTest(ClusterCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.steps = []
        cls.job = cls.client.submit(SMOKE, id="smoke", set=SHORT)
        cls.job.wait(on_step=cls.steps.append, timeout=SECONDS)

    def test_wait_tells_every_step_and_the_end(self):
        self.assertEqual([event.data["step"] for event in self.steps], [1, 2, 3, 4, 5, 6])
        self.assertEqual((self.job.state, self.job.step, self.job.steps), ("SUCCEEDED", 6, 6))
        self.assertGreaterEqual(self.job.eval_accuracy, 0.0)

    def test_a_submit_with_the_same_id_is_the_same_job(self):
        self.assertEqual(self.client.submit(SMOKE, id="smoke", set=SHORT).state, "SUCCEEDED")
        self.assertEqual([job.id for job in self.client.list(states=("succeeded",))], ["smoke"])

    def test_a_job_with_a_fault_is_refused_with_its_place(self):
        with self.assertRaises(freshet.InvalidJob) as caught:
            regex = {"reward.components.exact.type": "regex", "reward.components.exact.pattern": "("}
            self.client.submit(SMOKE, set=regex)
        self.assertIn("reward.components.exact.pattern", caught.exception.faults[0])
        with self.assertRaises(freshet.InvalidJob):
            self.client.validate(SMOKE, set={"group_size": 0})
        self.assertIn("timeout_ms: 1000", self.client.validate(SMOKE))

    def test_samples_metrics_and_cluster(self):
        samples = self.job.samples(limit=3)
        self.assertEqual(len(samples), 3)
        self.assertIn("completion", samples[0])
        rows = self.job.metrics()
        self.assertEqual([row["step"] for row in rows if "eval_name" not in row], [1, 2, 3, 4, 5, 6])
        evaluated = [row["policy_version"] for row in rows if "eval_name" in row]
        self.assertEqual(evaluated[-1], 6)
        roles = {worker.role for worker in self.client.cluster().workers}
        self.assertEqual(roles, {"rollout", "reward", "env", "trainer"})

    def test_a_checkpoint_is_exported_whole(self):
        versions = [checkpoint.version for checkpoint in self.job.checkpoints()]
        self.assertEqual(versions[0], 6)
        folder = self.job.export_checkpoint(self.folder / "model")
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual(config["hidden_size"], 64)
        self.assertGreater((folder / "model.safetensors").stat().st_size, 10_000)
        with self.assertRaises(freshet.NotFound):
            self.job.export_checkpoint(self.folder / "none", version=999)
        self.assertFalse((self.folder / "none").exists())

    def test_the_ledger_tells_what_was_trained_on(self):
        rows = list(self.job.ledger())
        trained = {row["uid"] for row in rows if row["event"] == "trained"}
        self.assertEqual(len(trained), 6 * 8 * 8)
        verified = self.run_freshet("ledger", "verify", "smoke")
        self.assertIn(f"every promise holds over {len(rows)} rows", verified)

    def test_logs_of_workers_and_of_the_controller(self):
        self.assertIn("trainer", {line.role for line in self.job.logs()})
        lines = list(self.job.logs(role="controller"))
        self.assertTrue(any("job=smoke" in line.text for line in lines), lines)
        self.assertEqual({line.role for line in lines}, {"controller"})

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "tensorboard is not installed")
    def test_a_job_is_exported_for_tensorboard(self):
        for follow in ((), ("--follow",)):
            done = self.run_freshet("export", "tensorboard", "smoke", self.folder / "curves", *follow)
            (file,) = (self.folder / "curves").iterdir()
            self.assertEqual(done, f"{file}\n")
            self.assertIn(b"train/reward_mean", file.read_bytes())

    def test_pause_resume_cancel_delete(self):
        job = self.client.submit(SMOKE, id="long", set={"trainer.steps": 100_000})
        begun = threading.Event()

        def watch():
            for event in job.watch(timeout=SECONDS):
                if event.kind == "step":
                    begun.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        self.assertTrue(begun.wait(SECONDS))
        self.await_state(job.pause("lunch"), "PAUSED")
        self.await_state(job.resume(), "RUNNING")
        job.cancel()
        with self.assertRaises(freshet.JobCancelled):
            job.wait(timeout=SECONDS)
        watcher.join(SECONDS)
        job.delete()
        with self.assertRaises(freshet.NotFound):
            self.client.get("long")

    def await_state(self, job, state):
        for event in job.watch(timeout=SECONDS):
            if event.kind == "state" and job.refresh().state == state:
                return
        self.fail(f"{job} ended before it was {state}")
