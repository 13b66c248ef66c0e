"""Jobs with rewards of type math and python: the operator starts freshet.reward_server for them."""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import freshet
from cluster_case import PROGRAM, SECONDS, ClusterCase

JOB = """
name: python-rewards
seed: 1
model: {init: random, config: {model_type: llama, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
  intermediate_size: 32, max_position_embeddings: 16}}
tokenizer: {type: char, alphabet: "0123456789+="}
dataset: {type: arithmetic, operands: 2, digits: 1, train_rows: 100}
group_size: 4
prompts_per_step: 4
rollout: {max_new_tokens: 3}
reward:
  timeout_ms: 60000
  components:
    correct: {type: math}
    even: {type: python, function: even, weight: 0.5}
loss: {preset: grpo}
trainer: {steps: 3}
optimizer: {learning_rate: 1.0e-3}
"""
FUNCTION = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    assert extra_info["prompt"].endswith("=") and ground_truth.isdigit()
    return {"score": float(solution_str[-1:] in set("02468")), "length": len(solution_str)}
"""


@unittest.skipUnless(importlib.util.find_spec("math_verify"), "math-verify is not installed")
class PythonRewardsTest(ClusterCase):
    @classmethod
    def setUpClass(cls):
        cls.rewards = subprocess.Popen(
            [sys.executable, "-m", "freshet.reward_server", "--listen", "127.0.0.1:0", "--seconds", str(SECONDS),
             "math", cls.file("even.py", FUNCTION)],
            stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(freshet.__file__))})
        cls.addClassCleanup(cls.stop_rewards)
        cls.address = cls.rewards.stdout.readline().split()[2].rstrip(";")
        cls.FLAGS = ("--envs", "0", "--python-rewards", cls.address)
        super().setUpClass()
        cls.job = cls.file("job.yaml", JOB)

    @classmethod
    def file(cls, name, text):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / name
        path.write_text(text)
        return str(path)

    @classmethod
    def stop_rewards(cls):
        cls.rewards.send_signal(signal.SIGTERM)
        cls.rewards.wait(SECONDS)
        cls.rewards.stdout.close()

    def check(self, samples):
        self.assertEqual(len(samples), 3 * 4 * 4)
        for sample in samples:
            parts = sample["components"]
            even = float(sample["completion"][-1:] in set("02468"))
            self.assertEqual(parts["even"], even)
            self.assertEqual(parts["even/length"], len(sample["completion"]))
            self.assertEqual(sample["reward"], parts["correct"] + 0.5 * even)
            terms = sample["prompt"].rstrip("=").split("+")
            completion = sample["completion"]
            if completion.isdigit() and (completion == "0" or completion[0] != "0"):
                self.assertEqual(parts["correct"], float(int(completion) == sum(map(int, terms))), sample)

    def test_a_cluster_uses_them(self):
        job = self.client.submit(self.job, id="rewards", set={"output.samples_per_step": 16})
        job.wait(timeout=SECONDS)
        self.check(list(job.samples(100)))

    def test_one_process_uses_them(self):
        run = self.folder / "run"
        subprocess.run(
            [PROGRAM, "local", self.job, "--run-dir", run, "--python-rewards", self.address,
             "--set", "output.samples_per_step=16"],
            check=True, capture_output=True, timeout=SECONDS)
        self.check([json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()])

    def test_without_them_such_a_job_is_refused(self):
        refused = subprocess.run([PROGRAM, "local", self.job, "--run-dir", self.folder / "none"],
                                 capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("reward.components.correct.type", refused.stderr)
        self.assertIn("--python-rewards", refused.stderr)
        self.assertFalse((self.folder / "none").exists())
        off = subprocess.run([PROGRAM, "local", self.job, "--python-rewards", "192.0.2.1:80"],
                             capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(off.returncode, 2, off.stderr)
        self.assertIn("is not a loopback address", off.stderr)
