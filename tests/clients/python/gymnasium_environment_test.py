"""Environments of Gymnasium, called through gRPC like by workers."""

import importlib.util
import json
import unittest

import freshet
from played_episodes import EpisodesTest


@unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
class GymnasiumEnvironmentTest(EpisodesTest):
    def test_a_registered_environment_is_played_by_numbers(self):
        lake = freshet.gymnasium_environment("FrozenLake-v1", is_slippery=False)
        replies = self.play(lake, "1", "1", "2", "2", "1", "2")
        self.assertEqual([reply.observation for reply in replies], ["0", "4", "8", "9", "10", "14", "15"])
        self.assertEqual([reply.reward for reply in replies], [0, 0, 0, 0, 0, 0, 1])
        self.assertEqual([reply.terminated for reply in replies], [False] * 6 + [True])

    def test_what_is_rendered_as_text_is_the_observation(self):
        lake = freshet.gymnasium_environment("FrozenLake-v1", render_mode="ansi")
        self.assertIn("FHFH", self.play(lake)[0].observation)

    def test_an_action_that_is_none_is_explained_and_changes_nothing(self):
        lake = freshet.gymnasium_environment("FrozenLake-v1", is_slippery=False)
        for action in ("left", "7", "-1", "1.5", "[1]", "", "null", "1" * 5000, "[" * 100_000):
            with self.subTest(action[:20]):
                _, wrong, right = self.play(lake, action, "1")
                self.assertEqual(wrong.observation, "invalid action: Discrete(4)\n")
                self.assertEqual((wrong.reward, wrong.terminated, wrong.truncated), (0, False, False))
                self.assertEqual((right.observation, wrong.invalid, right.invalid), ("4", True, False))

    def test_arrays_are_json_and_the_seed_decides(self):
        cart = freshet.gymnasium_environment("CartPole-v1")
        first = json.loads(self.play(cart)[0].observation)
        self.assertEqual(len(first), 4)
        self.assertEqual(json.loads(self.play(cart)[0].observation), first)
        self.assertNotEqual(json.loads(self.play(cart, seed=8)[0].observation), first)

    def test_a_class_with_texts_and_structured_actions(self):
        import gymnasium
        from gymnasium import spaces

        class Echo(gymnasium.Env):
            observation_space = spaces.Text(1000)
            action_space = spaces.Dict({"move": spaces.Box(-1, 1, (2,)), "say": spaces.Text(10), "n": spaces.Tuple([spaces.Discrete(2)])})

            def reset(self, *, seed=None, options=None):
                return "begin", {}

            def step(self, action):
                return f"{action['say']} {action['move'].tolist()} {action['n']}", 0.5, False, True, {}

        echo = freshet.gymnasium_environment(Echo)
        _, reply = self.play(echo, json.dumps({"move": [0.5, -1], "say": "hi", "n": [1]}))
        self.assertEqual((reply.observation, reply.reward, reply.truncated), ("hi [0.5, -1.0] (1,)", 0.5, True))
        _, reply = self.play(echo, json.dumps({"move": [0.5, 3], "say": "hi", "n": [1]}))
        self.assertIn("invalid action: Dict(", reply.observation)
