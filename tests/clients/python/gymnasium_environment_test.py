"""Environments of Gymnasium, called through gRPC like by workers."""

import importlib.util
import json
import logging
import unittest

import freshet
import grpc
from freshet.env.v1 import env_service_pb2 as env_pb
from freshet.env.v1 import env_service_pb2_grpc

SECONDS = 60.0


@unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
class GymnasiumEnvironmentTest(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def play(self, environment, *actions, seed=7):
        """The replies to a reset and to the actions."""
        server = freshet.EnvironmentServer(environment, "127.0.0.1:0").start()
        self.addCleanup(server.stop, 0.0)
        channel = grpc.insecure_channel(server.address)
        self.addCleanup(channel.close)
        requests = [env_pb.EpisodeRequest(reset=env_pb.Reset(seed=seed))]
        requests += [env_pb.EpisodeRequest(step=env_pb.Step(action=action)) for action in actions]
        stub = env_service_pb2_grpc.EnvServiceStub(channel)
        return list(stub.Episode(iter(requests), timeout=SECONDS))

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
                self.assertEqual(right.observation, "4")

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
