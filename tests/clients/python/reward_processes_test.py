"""Reward functions in processes of their own, called through gRPC like by workers."""

import importlib.util
import logging
import pathlib
import tempfile
import threading
import unittest

import freshet
import grpc
from freshet.reward.v1 import reward_service_pb2 as reward_pb
from freshet.reward.v1 import reward_service_pb2_grpc
from freshet.trajectory.v1 import trajectory_pb2 as trajectory

OK = trajectory.SCORE_OUTCOME_OK
TIMEOUT = trajectory.SCORE_OUTCOME_TIMEOUT
INFRA_ERROR = trajectory.SCORE_OUTCOME_INFRA_ERROR
SECONDS = 120.0

FUNCTION = """
import os, sys, time
print("loaded")

def compute_score(data_source, solution_str, ground_truth, extra_info):
    print("called", flush=True)
    os.write(1, b"to descriptor 1")
    if solution_str == "exits": os._exit(3)
    if solution_str == "raises": raise KeyError("no such key")
    if solution_str == "hoards": return float(len(bytearray(3 << 29)))
    if solution_str == "starts":
        import subprocess
        with open(ground_truth, "w") as file: file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
        while True: pass
    if solution_str == "nan": return float("nan")
    if solution_str == "text": return "1, I hope"
    if solution_str == "large": raise ValueError("x" * (4 << 20))
    if solution_str == "parts": return {"score": 0.5, "acc": True, "format": 0.25, "pred": "7"}
    if solution_str == "all": return float([data_source, ground_truth, extra_info] == [
        "gsm8k", "4", {"prompt": "2+2=", "level": "1"}])
    return solution_str == ground_truth
"""


class RewardProcessesTest(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)  # exceptions of user code are logged
        self.addCleanup(logging.disable, logging.NOTSET)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "my_reward.py"
        self.file.write_text(FUNCTION)

    def serve(self, source, **limits):
        pool = freshet.RewardProcesses(source, **{"processes": 1, "seconds": SECONDS, **limits})
        self.addCleanup(pool.close)
        server = freshet.RewardServer(pool, "127.0.0.1:0").start()
        self.addCleanup(server.stop, 0.0)
        channel = grpc.insecure_channel(server.address)
        self.addCleanup(channel.close)
        stub = reward_service_pb2_grpc.RewardServiceStub(channel)

        def score(completion, answer="4"):
            attributes = {"answer": answer, "level": "1", "data_source": "gsm8k"}
            item = reward_pb.ScoreItem(prompt="2+2=", completion=completion, attributes=attributes)
            return stub.Score(reward_pb.ScoreRequest(items=[item]), timeout=SECONDS).scores[0]

        return score

    def test_functions_get_what_verl_gives_them(self):
        score = self.serve(str(self.file))
        self.assertEqual([score(text).reward for text in ("4", "5", "all")], [1.0, 0.0, 1.0])
        parts = score("parts")
        self.assertEqual((parts.reward, parts.outcome), (0.5, OK))
        self.assertEqual(dict(parts.components), {"acc": 1.0, "format": 0.25})

    def test_what_goes_wrong_is_an_error_of_that_sample_alone(self):
        score = self.serve(str(self.file), memory_bytes=1 << 30)
        for completion, error in {
            "raises": "KeyError: 'no such key'",
            "exits": "the process of the reward function was lost: it ended with code 3",
            "hoards": "MemoryError",
            "nan": "it returned nan",
            "text": "could not convert",
            "large": "xxx",
        }.items():
            with self.subTest(completion):
                failed = score(completion)
                self.assertEqual(failed.outcome, INFRA_ERROR)
                self.assertIn(error, failed.error)
                self.assertEqual(score("4").reward, 1.0)

    def test_a_call_that_takes_too_long_is_ended_with_what_it_has_started(self):
        score = self.serve(str(self.file), seconds=5.0)
        self.assertEqual(score("4").reward, 1.0)
        started = self.file.with_name("pid")
        failed = score("starts", str(started))
        self.assertEqual((failed.outcome, failed.error), (TIMEOUT, "it took longer than 5 s"))
        status = pathlib.Path(f"/proc/{started.read_text()}/status")
        gone = threading.Event()
        for _ in range(1000):
            if not status.exists() or "State:\tZ" in status.read_text():
                break
            gone.wait(0.01)
        else:
            self.fail("the process that it has started still runs")

    def test_a_source_that_cannot_be_loaded_is_an_error_at_once(self):
        with self.assertRaisesRegex(FileNotFoundError, "is not a file, nor 'math'"):
            freshet.RewardProcesses("missing.py")
        with self.assertRaisesRegex(RuntimeError, "cannot load .*: AttributeError: .*no_such"):
            freshet.RewardProcesses(str(self.file), "no_such_function")
        self.file.write_text("import no_such_module")
        with self.assertRaisesRegex(RuntimeError, "ModuleNotFoundError"):
            freshet.RewardProcesses(str(self.file))

    @unittest.skipUnless(importlib.util.find_spec("math_verify"), "math-verify is not installed")
    def test_math_verify_compares_the_gold_answer_first(self):
        score = self.serve("math")
        for gold, completion, reward in (
            ("4", "The answer is $\\boxed{4}$.", 1.0),
            ("4", "The answer is $\\boxed{5}$.", 0.0),
            ("\\frac{1}{2}", "so it is 0.5", 1.0),
            ("$x>1$", "the interval $(1,\\infty)$", 1.0),
            ("$(1,\\infty)$", "$x>1$", 0.0),
        ):
            with self.subTest(gold=gold, completion=completion):
                result = score(completion, gold)
                self.assertEqual((result.outcome, result.error), (OK, ""))
                self.assertEqual(result.reward, reward)
        self.assertEqual(score("4", "").outcome, INFRA_ERROR)
