"""Reward functions in processes of their own, called through gRPC like by workers."""

import importlib.util
import logging
import pathlib
import tempfile
import threading
import time
import unittest

import freshet
import grpc
from freshet import rewards
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
    if solution_str == "infinite": return {"score": 1.0, "part": float("inf")}
    if solution_str == "surrogate": raise ValueError("\\ud800")
    if solution_str in ("garbage", "flood"):
        number = int(sys.argv[1])
        os.write(number, b"\\xff" * 1000 if solution_str == "garbage" else b"\\x01\\0\\0\\x7f")
    if solution_str == "forks" and os.fork() == 0: sys.exit(0)
    if solution_str == "text": return "1, I hope"
    if solution_str == "large": raise ValueError("x" * (4 << 20))
    if solution_str == "parts": return {"score": 0.5, "acc": True, "format": 0.25, "pred": "7"}
    if solution_str == "all": return float([data_source, ground_truth, extra_info] == [
        "gsm8k", "4", {"prompt": "2+2=", "level": "1"}])
    return solution_str == ground_truth
"""

# The gold answers and completions of 500 pairs.
GOLDS = (
    "4", "-3", "0.5", "1,234", "$\\frac{1}{2}$", "$\\frac{3}{4}$", "$\\sqrt{2}$", "$2\\sqrt{3}$", "$\\pi$",
    "$x^2+2x+1$", "$(x+1)^2$", "$x=4$", "$\\{1,2,3\\}$", "$(1,2)$", "$[0,1]$", "$x>1$", "$10\\%$",
    "$\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}$", "$2^{10}$", "$1.5\\times10^{3}$",
)
COMPLETIONS = (
    "4", "The answer is $\\boxed{4}$.", "#### 4", "so x = 4, that is $x=4$", "first 3, then 5, finally 4.0",
    "$\\boxed{-3}$", "minus three", "0.50", "$\\frac{2}{4}$", "$1/2$", "1234", "$0.75$", "$1.41421356$",
    "$\\boxed{\\sqrt{12}}$", "$3.14159$", "$\\boxed{(x+1)(x+1)}$", "$x^2+1+2x$", "$\\boxed{\\{3,2,1\\}}$",
    "$(1,2)$", "$0\\le x\\le1$", "$(1,\\infty)$", "$\\boxed{0.1}$",
    "$\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}$", "1024", "the result is 1500",
)


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
            "infinite": "it returned inf",
            "surrogate": "ValueError",
            "garbage": "the process of the reward function was lost: an answer of 4294967295 bytes",
            "flood": "the process of the reward function was lost: an answer of",
            "text": "could not convert",
            "large": "xxx",
        }.items():
            with self.subTest(completion):
                failed = score(completion)
                self.assertEqual(failed.outcome, INFRA_ERROR)
                self.assertIn(error, failed.error)
                self.assertEqual(score("4").reward, 1.0)

    def test_a_process_that_a_function_forks_gives_no_answer(self):
        score = self.serve(str(self.file))
        self.assertEqual(score("forks").outcome, OK)
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

    def test_a_call_ends_with_the_patience_of_its_caller(self):
        pool = freshet.RewardProcesses(str(self.file), processes=1, seconds=SECONDS)
        self.addCleanup(pool.close)
        token = rewards._deadline.set(time.monotonic() + 1.0)
        self.addCleanup(rewards._deadline.reset, token)
        with self.assertRaisesRegex(freshet.rewards.RewardTimeout, "it took longer than"):
            pool("2+2=", "starts", answer=str(self.file.with_name("pid")))

    def test_a_server_offers_several_functions_by_name(self):
        functions = {"one": lambda prompt, completion: 1.0, "two": lambda prompt, completion: 2.0}
        server = freshet.RewardServer(functions, "127.0.0.1:0").start()
        self.addCleanup(server.stop, 0.0)
        channel = grpc.insecure_channel(server.address)
        self.addCleanup(channel.close)
        stub = reward_service_pb2_grpc.RewardServiceStub(channel)

        def call(function):
            request = reward_pb.ScoreRequest(items=[reward_pb.ScoreItem()], function=function)
            return stub.Score(request, timeout=SECONDS).scores[0].reward

        self.assertEqual([call("one"), call("two")], [1.0, 2.0])
        for missing in ("", "three"):
            with self.assertRaises(grpc.RpcError) as failed:
                call(missing)
            self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)
            self.assertIn("is offered here, but: one, two", failed.exception.details())

    def test_a_source_that_cannot_be_loaded_is_an_error_at_once(self):
        with self.assertRaisesRegex(FileNotFoundError, "is not a file, nor 'math'"):
            freshet.RewardProcesses("missing.py")
        with self.assertRaisesRegex(RuntimeError, "cannot load .*: AttributeError: .*no_such"):
            freshet.RewardProcesses(str(self.file), "no_such_function")
        self.file.write_text("compute_score = 5")
        with self.assertRaisesRegex(RuntimeError, "compute_score is not a function"):
            freshet.RewardProcesses(str(self.file))
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

    @unittest.skipUnless(importlib.util.find_spec("math_verify"), "math-verify is not installed")
    def test_the_verdicts_of_500_pairs_are_those_of_math_verify(self):
        import math_verify

        pool = freshet.RewardProcesses("math", processes=1, seconds=SECONDS)
        self.addCleanup(pool.close)
        equal = 0
        for gold in GOLDS:
            for completion in COMPLETIONS:
                expected = math_verify.verify(math_verify.parse(gold), math_verify.parse(completion))
                with self.subTest(gold=gold, completion=completion):
                    self.assertEqual(pool("", completion, answer=gold).reward, float(expected))
                equal += expected
        self.assertEqual(len(GOLDS) * len(COMPLETIONS), 500)
        self.assertGreater(equal, 25)
