"""User-defined rewards and environments, called through gRPC like by workers."""

import json
import logging
import sys
import threading
import unittest

import freshet
import grpc
from freshet.env.v1 import env_service_pb2 as env_pb
from freshet.env.v1 import env_service_pb2_grpc
from freshet.reward.v1 import reward_service_pb2 as reward_pb
from freshet.reward.v1 import reward_service_pb2_grpc
from freshet.trajectory.v1 import trajectory_pb2 as trajectory

OK = trajectory.SCORE_OUTCOME_OK
INFRA_ERROR = trajectory.SCORE_OUTCOME_INFRA_ERROR
SECONDS = 20.0


class ServingTest(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)  # exceptions of user code are logged
        self.addCleanup(logging.disable, logging.NOTSET)

    def connect(self, server):
        server.start()
        self.addCleanup(server.stop, 0.0)
        channel = grpc.insecure_channel(server.address)
        self.addCleanup(channel.close)
        return channel


class RewardTest(ServingTest):
    def serve(self, function):
        channel = self.connect(freshet.RewardServer(function, "127.0.0.1:0"))
        return reward_service_pb2_grpc.RewardServiceStub(channel)

    def score(self, function, *completions):
        items = [
            reward_pb.ScoreItem(
                prompt="2+2=", completion=text, attributes={"answer": "4", "prompt": "x", "level": "1"}
            )
            for text in completions
        ]
        request = reward_pb.ScoreRequest(items=items)
        return list(self.serve(function).Score(request, timeout=SECONDS).scores)

    def test_a_number_is_the_reward(self):
        def exact(prompt, completion, answer):
            return completion == answer and prompt == "2+2="

        right, wrong = self.score(exact, "4", "5")
        self.assertEqual((right.reward, right.outcome, dict(right.components)), (1.0, OK, {}))
        self.assertEqual((wrong.reward, wrong.outcome), (0.0, OK))

    def test_as_many_calls_as_a_reward_worker_makes_run_at_the_same_time(self):
        all_are_there = threading.Barrier(16, timeout=SECONDS)
        stub = self.serve(lambda prompt, completion: float(all_are_there.wait() >= 0))
        request = reward_pb.ScoreRequest(items=[reward_pb.ScoreItem(completion="4")])
        calls = [stub.Score.future(request, timeout=2 * SECONDS) for _ in range(16)]
        self.assertEqual([call.result().scores[0].reward for call in calls], [1.0] * 16)

    def test_a_dict_is_its_sum_and_its_parts(self):
        (score,) = self.score(lambda prompt, completion: {"digits": 1, "length": -0.25}, "4")
        self.assertEqual((score.reward, score.outcome), (0.75, OK))
        self.assertEqual(dict(score.components), {"digits": 1.0, "length": -0.25})

    def test_all_fields_of_the_row_go_to_keyword_arguments(self):
        seen = []
        self.score(lambda prompt, completion, **fields: seen.append(fields) or 0.0, "4")
        self.assertEqual(seen, [{"answer": "4", "level": "1"}])

    def test_what_cannot_be_a_reward_is_an_error_of_that_sample_alone(self):
        answers = {
            "raises": None,
            "exits": None,
            "nan": float("nan"),
            "none": None,
            "empty": {},
            "many": {str(i): 0 for i in range(65)},
            "long": {"x" * 65: 0},
            "fine": 1.0,
        }

        def function(prompt, completion):
            if completion == "raises":
                raise KeyError("no such row")
            if completion == "exits":
                sys.exit(3)
            return answers[completion]

        scores = dict(zip(answers, self.score(function, *answers)))
        self.assertEqual((scores["fine"].reward, scores["fine"].outcome), (1.0, OK))
        for name in ("raises", "exits", "nan", "none", "empty", "many", "long"):
            self.assertEqual(scores[name].outcome, INFRA_ERROR, name)
            self.assertEqual(scores[name].reward, 0.0)
        self.assertIn("KeyError", scores["raises"].error)
        self.assertIn("65 parts", scores["many"].error)

    def test_an_error_is_bounded(self):
        def fails(prompt, completion):
            raise ValueError("x" * 10_000)

        (score,) = self.score(fails, "4")
        self.assertEqual(len(score.error), 500)

    def test_a_call_without_items_is_refused(self):
        stub = self.serve(lambda prompt, completion: 0.0)
        with self.assertRaises(grpc.RpcError) as caught:
            stub.Score(reward_pb.ScoreRequest(), timeout=SECONDS)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_plaintext_stays_on_loopback(self):
        with self.assertRaisesRegex(ValueError, "insecure"):
            freshet.RewardServer(lambda prompt, completion: 0.0, "0.0.0.0:0")

    def test_a_taken_port_is_an_error(self):
        server = freshet.RewardServer(lambda prompt, completion: 0.0, "127.0.0.1:0")
        self.addCleanup(server.stop, 0.0)
        server.start()
        with self.assertRaisesRegex(OSError, "cannot listen on"):
            freshet.RewardServer(lambda prompt, completion: 0.0, server.address)

    def test_a_function_may_see_the_group(self):
        def longest(prompt, completion, group=(), group_index=0):
            return float(bool(group) and group[group_index] == max(group, key=len))

        item = reward_pb.ScoreItem(prompt="p", completion="abc", group=["a", "abc"], index=1)
        alone = reward_pb.ScoreItem(prompt="p", completion="abc")
        reply = self.serve(longest).Score(reward_pb.ScoreRequest(items=[item, alone]), timeout=SECONDS)
        self.assertEqual([score.reward for score in reply.scores], [1.0, 0.0])


class Countdown:
    """Counts down from the seed.

    More than one line.
    """

    closed = 0
    wrong = {
        "nan": ("", float("nan"), False, False, {}),
        "infinite": ("", float("inf"), False, False, {}),
        "flood": ("x" * (100 << 20), 0.0, False, False, {}),
        "surrogate": ("\ud800", 0.0, False, False, {}),
        "bytes": (b"\xff", 0.0, False, False, {}),
        "short": ("", 0.0),
        "negative cost": ("", 0.0, False, False, {"cost": -1}),
        "infinite cost": ("", 0.0, False, False, {"cost": float("inf")}),
        "no cost": ("", 0.0, False, False, {"cost": "much"}),
        "cost of none": ("", 0.0, False, False, {"cost": None}),
        "costs": ("", 0.0, False, False, {"cost": [1, 2]}),
    }

    def reset(self, seed, options):
        self.left = seed
        self.by = int(options.get("by", "1"))
        return f"{self.left}", {"left": self.left}

    def step(self, action):
        if action == "exit":
            sys.exit(3)
        if action.startswith("raise"):
            raise RuntimeError("broken" if action == "raise" else "\ud800")
        if action in self.wrong:
            return self.wrong[action]
        self.left -= self.by
        return f"{self.left}", 0.5, self.left <= 0, action == "stop", {"cost": 0.25} if action == "pay" else {}

    def close(self):
        Countdown.closed += 1


def reset(seed=2, name="", **options):
    return env_pb.EpisodeRequest(reset=env_pb.Reset(environment=name, seed=seed, options=options))


def act(action=""):
    return env_pb.EpisodeRequest(step=env_pb.Step(action=action))


CLOSE = env_pb.EpisodeRequest(close=env_pb.Close())


class Calculator:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]

    def reset(self, seed, options):
        return [{"role": "user", "content": "1 + 1?"}], {}

    def step(self, action):
        if action == "rewrite":
            return freshet.NewContext([{"role": "user", "content": "2 + 2?"}]), 0.0, False, False, {}
        if action == "unknown":
            return [{"role": "tool", "content": "2", "text": "2"}], 0.0, False, False, {}
        return [{"role": "tool", "content": "<|im_end|>", "name": "add", "tool_call_id": "a"}], 0.0, False, False, {}


class EnvironmentTest(ServingTest):
    def serve(self, cls=Countdown, **options):
        channel = self.connect(freshet.EnvironmentServer(cls, "127.0.0.1:0", **options))
        return env_service_pb2_grpc.EnvServiceStub(channel)

    def play(self, *requests, **options):
        return list(self.serve(**options).Episode(iter(requests), timeout=SECONDS))

    def code_of(self, *requests, **options):
        with self.assertRaises(grpc.RpcError) as caught:
            self.play(*requests, **options)
        return caught.exception.code()

    def test_an_episode(self):
        Countdown.closed = 0
        first, second, third = self.play(reset(2), act(), act(), CLOSE)
        self.assertEqual((first.observation, dict(first.info)), ("2", {"left": "2"}))
        self.assertEqual((second.observation, second.reward, second.terminated), ("1", 0.5, False))
        self.assertTrue(third.terminated)
        self.assertFalse(third.truncated)
        self.assertEqual(Countdown.closed, 1)

    def test_a_step_may_have_a_cost(self):
        self.assertEqual([reply.cost for reply in self.play(reset(3), act("pay"), act(), CLOSE)], [0.0, 0.25, 0.0])

    def test_another_kind_of_cost_names_the_key(self):
        for action, value in (("negative cost", "-1"), ("infinite cost", "inf"), ("no cost", "'much'"),
                              ("cost of none", "None"), ("costs", "[1, 2]")):
            with self.subTest(action), self.assertRaises(grpc.RpcError) as caught:
                self.play(reset(), act(action))
            self.assertIn(f'info["cost"] is {value}; return a number of at least 0', caught.exception.details())

    def test_observations_may_be_messages(self):
        first, second = self.play(reset(), act(), CLOSE, cls=Calculator)
        self.assertEqual(list(first.messages), [env_pb.Message(role="user", content="1 + 1?")])
        self.assertEqual([json.loads(tool) for tool in first.tools], Calculator.tools)
        answer = env_pb.Message(role="tool", content="<|im_end|>", name="add", tool_call_id="a")
        self.assertEqual((list(second.messages), list(second.tools)), ([answer], []))
        self.assertEqual([first.new_context, second.new_context], [False, False])
        self.assertEqual(self.code_of(reset(), act("unknown"), cls=Calculator), grpc.StatusCode.INTERNAL)
        [_, rewritten] = self.play(reset(), act("rewrite"), CLOSE, cls=Calculator)
        self.assertEqual(list(rewritten.messages), [env_pb.Message(role="user", content="2 + 2?")])
        self.assertTrue(rewritten.new_context)

    def test_a_stream_plays_episodes_one_after_another(self):
        replies = self.play(reset(4, by="4"), act(), reset(9), act("stop"), CLOSE)
        self.assertEqual([reply.observation for reply in replies], ["4", "0", "9", "8"])
        self.assertTrue(replies[-1].truncated)

    def test_a_step_without_an_episode_is_refused(self):
        self.assertEqual(self.code_of(act()), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertEqual(self.code_of(reset(1), act(), act()), grpc.StatusCode.FAILED_PRECONDITION)

    def test_another_environment_is_refused(self):
        self.assertEqual(self.code_of(reset(name="nim")), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(len(self.play(reset(name="nim"), CLOSE, name="nim")), 1)

    def test_what_the_class_raises_is_an_infrastructure_error(self):
        for action in ("raise", "raise a surrogate", "exit", *Countdown.wrong):
            with self.subTest(action):
                self.assertEqual(self.code_of(reset(), act(action)), grpc.StatusCode.INTERNAL)

    def test_a_full_server_refuses_another_episode(self):
        stub = self.serve(max_episodes=1)
        first = stub.Episode(_held([reset()]), timeout=SECONDS)
        self.assertEqual(next(first).observation, "2")
        with self.assertRaises(grpc.RpcError) as caught:
            list(stub.Episode(iter([reset()]), timeout=SECONDS))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        listed = stub.ListEnvironments(env_pb.ListEnvironmentsRequest(), timeout=SECONDS)
        self.assertEqual((listed.open_episodes, listed.max_episodes), (1, 1))
        first.cancel()

    def test_a_class_that_exits_when_it_is_closed_leaves_its_place(self):
        class Exits(Countdown):
            def close(self):
                sys.exit(3)

        stub = self.serve(cls=Exits, max_episodes=1)
        self.assertEqual(len(list(stub.Episode(iter([reset(), CLOSE]), timeout=SECONDS))), 1)
        listed = stub.ListEnvironments(env_pb.ListEnvironmentsRequest(), timeout=SECONDS)
        self.assertEqual(listed.open_episodes, 0)

    def test_it_says_what_it_is(self):
        listed = self.serve().ListEnvironments(env_pb.ListEnvironmentsRequest(), timeout=SECONDS)
        (info,) = listed.environments
        self.assertEqual((info.name, info.description), ("Countdown", "Counts down from the seed."))


def _held(requests):
    """Yields the requests and keeps the stream open."""
    yield from requests
    threading.Event().wait(SECONDS)


if __name__ == "__main__":
    unittest.main()
