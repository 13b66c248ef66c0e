#!/usr/bin/env python3
"""The comparison of a job with TRL: what TRL is given, and what is concluded from the runs."""
import json
import pathlib
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]
import stories_trl  # noqa: E402
import trl_job  # noqa: E402


def run(rewards, seconds):
    return {"seconds": seconds, "samples": 128 * len(rewards), "rewards": rewards,
            "walls": [seconds * (n + 1) / len(rewards) for n in range(len(rewards))]}


def job():
    contains = {"type": "contains", "weight": 0.5}
    return {"seed": 1, "prompts_per_step": 16, "group_size": 8, "model": {"dtype": "fp32"},
            "dataset": {"type": "template", "shuffle": True, "rows": [{"name": name} for name in "abcdefgh"]},
            "rollout": {"max_new_tokens": 120, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0},
            "reward": {"components": {"name": contains | {"text": "{name}", "min_count": 3},
                                      "happy": contains | {"text": "happy", "min_count": 1}}},
            "loss": {"preset": "grpo", "anchor": "proximal", "clip": {"low": 0.2, "high": 0.28},
                     "correction": {"kind": "tis", "cap": 2.0}},
            "warmup": {}, "filter": {"zero_variance": False},
            "trainer": {"steps": 2, "minibatches_per_step": 1, "activation_checkpointing": False},
            "optimizer": {"learning_rate": 5e-4, "schedule": "constant", "warmup_steps": 0, "beta1": 0.9, "beta2": 0.999,
                          "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 1.0}}


class JobTest(unittest.TestCase):
    def test_prompts_come_in_the_order_of_freshet(self):
        # As RowOrder.OrderIsPinned.
        self.assertEqual(trl_job.row_order(1, 8, 8), [4, 3, 5, 7, 1, 0, 6, 2])
        rows = trl_job.rows(job())
        self.assertEqual("".join(row["name"] for row in rows[:8]), "edfhbagc")
        self.assertEqual(len(rows), 32)

    def test_a_step_has_all_samples_of_the_job(self):
        options = trl_job.options(job(), 32)
        self.assertEqual(options["per_device_train_batch_size"] * options["gradient_accumulation_steps"], 128)

    def test_a_component_counts_occurrences_that_do_not_overlap(self):
        row = {"name": "Anna"}
        self.assertEqual(trl_job.reward(job(), row, "Anna, Anna and Anna"), 0.5)
        self.assertEqual(trl_job.reward(job(), row, "Anna, Anna and a happy dog"), 0.5)
        self.assertEqual(trl_job.reward(job(), row, "Happy Anna"), 0)

    def test_a_job_that_trl_trains_otherwise_is_refused(self):
        other = job()
        other["loss"]["aggregate"] = "token_mean"
        with self.assertRaisesRegex(ValueError, r"loss, other keys: \['aggregate'\]"):
            trl_job.options(other, 128)


class RowsTest(unittest.TestCase):
    # Mean rewards at the end 0.8, 0.9 and 1.0 (standard deviation 0.1); steps to the level 5, 5 and 5.
    TRL = [run([value] * 10, 100) for value in (0.8, 0.9, 1.0)]

    def ratios(self, ours):
        return [row["ratio"] >= row["goal"] for row in self.rows(ours) if "goal" in row]

    def rows(self, ours):
        return stories_trl.rows({"trl_threads": 1, "freshet": ours, "trl": self.TRL})

    def test_a_curve_within_the_spread_of_trl_is_no_worse(self):
        self.assertEqual(self.ratios([run([0.81] * 10, 10)] * 3), [True, True, True])

    def test_a_lower_reward_a_later_rise_and_a_smaller_speed_are_seen(self):
        self.assertEqual(self.ratios([run([0.79] * 10, 10)] * 3), [True, False, True])
        self.assertEqual(self.ratios([run([0] + [0.9] * 9, 10)] * 3), [True, True, False])
        self.assertEqual(self.ratios([run([0.9] * 10, 11)] * 3), [False, True, True])

    def test_a_level_that_is_not_reached_counts_as_a_step_after_the_last(self):
        never = run([0.7] * 10, 10)
        self.assertEqual(stories_trl.reached(never), 11)
        self.assertEqual(stories_trl.until_level(never), 10)

    def test_a_committed_result_is_marked(self):
        kept = stories_trl.RESULT
        self.addCleanup(setattr, stories_trl, "RESULT", kept)
        with tempfile.TemporaryDirectory() as folder:
            stories_trl.RESULT = pathlib.Path(folder) / "result.json"
            self.assertEqual(stories_trl.committed(), [])
            stories_trl.RESULT.write_text(json.dumps(
                {"cores": 2, "trl_threads": 1, "processor": "P", "freshet": self.TRL, "trl": self.TRL}))
            rows = stories_trl.committed()
            self.assertEqual(len(rows), 4)
            for row in rows:
                self.assertIn("measured before with --full (2 cores, P)", row["note"])


if __name__ == "__main__":
    unittest.main()
