"""The examples in examples/python learn from their own reward and environment servers."""

import importlib.util
import statistics

import freshet
from cluster_case import REPOSITORY, SECONDS, ClusterCase

EXAMPLES = REPOSITORY / "examples" / "python"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ExamplesTest(ClusterCase):
    FLAGS = ("--envs", "0")

    def rewards(self, name, settings):
        """Mean rewards of the first and the last 10 steps of a run."""
        job = self.client.submit(EXAMPLES / f"{name}.yaml", id=name, set=settings)
        rewards = []
        job.wait(on_step=lambda event: rewards.append(event.data["reward_mean"]), timeout=SECONDS)
        self.assertIn("every promise holds", self.run_freshet("ledger", "verify", name))
        return statistics.mean(rewards[:10]), statistics.mean(rewards[-10:])

    def test_a_reward_of_your_own(self):
        example = load("own_reward")
        self.assertEqual(example.sortedness("742=", "247"), 1.0)
        with freshet.RewardServer(example.sortedness, "127.0.0.1:0") as server:
            first, last = self.rewards(
                "own_reward",
                {"reward.components.sorted.address": server.address, "trainer.steps": 60},
            )
        self.assertGreater(last, first + 0.1, (first, last))

    def test_an_environment_of_your_own(self):
        example = load("own_environment")
        with freshet.EnvironmentServer(example.Nim, "127.0.0.1:0", max_episodes=256) as server:
            first, last = self.rewards(
                "own_environment", {"environment.address": server.address, "trainer.steps": 50}
            )
        self.assertGreater(last, first + 0.2, (first, last))
