#!/usr/bin/env python3
"""Runs the supervisor of inference servers (helm/freshet/files/supervise.sh) with a fake server."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPERVISE = ROOT / "helm" / "freshet" / "files" / "supervise.sh"
sys.path.insert(0, str(ROOT / "tests" / "testing"))
from launcher import await_true, free_port  # noqa: E402

# Appends its arguments to FAKE_LOG, then answers GET /health.
FAKE = f"""#!{sys.executable}
import http.server, os, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass
argument = lambda name: sys.argv[sys.argv.index(name) + 1]
server = http.server.HTTPServer((argument("--host"), int(argument("--port"))), Health)
with open(os.environ["FAKE_LOG"], "a") as log:
    print(os.getpid(), *sys.argv[1:], file=log)
server.serve_forever()
"""


class SuperviseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log"
        self.log.touch()
        self.program = self.folder / "fake"
        self.program.write_text(FAKE, encoding="utf-8")
        self.program.chmod(0o755)
        self.port = str(free_port())

    def supervise(self, engine, *flags):
        environment = {**os.environ, "ENGINE": engine, "VLLM": str(self.program), "PYTHON": str(self.program),
                       "FAKE_LOG": str(self.log)}
        process = subprocess.Popen([SUPERVISE, self.folder, self.port, *flags], env=environment,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.terminate)
        return process

    def ask_for(self, name):
        asked = self.folder / "asked"
        asked.write_text(f"{name}\n", encoding="utf-8")
        asked.rename(self.folder / "serve")

    def starts(self):
        """[process id, argument...] of each server that was started."""
        return [line.split() for line in self.log.read_text(encoding="utf-8").splitlines()]

    def await_starts(self, count):
        await_true(f"{count} servers", lambda: len(self.starts()) >= count, 60)
        return self.starts()[-1]

    def probe(self):
        return subprocess.run([SUPERVISE, "--probe", self.folder, self.port], timeout=60, check=False).returncode

    def test_starts_the_server_that_is_asked_for_on_loopback(self):
        self.supervise("vllm", "--max-num-seqs", "8")
        self.ask_for("a.1")
        start = " ".join(self.await_starts(1)[1:])
        self.assertTrue(start.startswith(f"serve {self.folder}/a.1 --max-num-seqs 8 "), start)
        # Behind the operator's flags, which they override.
        self.assertIn(" --logprobs-mode processed_logprobs --served-model-name a.1 --host 127.0.0.1 ", start)

    def test_starts_sglang(self):
        self.supervise("sglang")
        self.ask_for("a.1")
        start = " ".join(self.await_starts(1)[1:])
        self.assertTrue(start.startswith(f"-m sglang.launch_server --model-path {self.folder}/a.1 "), start)
        self.assertIn("--host 127.0.0.1", start)
        self.assertNotIn("--logprobs-mode", start)

    def test_replaces_a_server_of_another_name_and_one_that_has_ended(self):
        process = self.supervise("vllm")
        self.ask_for("a.1")
        self.await_starts(1)
        self.ask_for("a.2")
        second = self.await_starts(2)
        self.assertEqual(second[2], f"{self.folder}/a.2")
        os.kill(int(second[0]), signal.SIGKILL)
        third = self.await_starts(3)
        self.assertEqual(third[2], f"{self.folder}/a.2")
        process.terminate()
        self.assertEqual(process.wait(60), 0)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(third[0]), 0)

    def test_the_probe_fails_only_if_a_server_is_asked_for_and_does_not_answer(self):
        self.assertEqual(self.probe(), 0)
        self.ask_for("a.1")
        self.assertEqual(self.probe(), 1)
        self.supervise("vllm")
        self.await_starts(1)
        self.assertEqual(self.probe(), 0)

    def test_refuses_an_engine_that_it_does_not_know(self):
        self.assertEqual(self.supervise("trt").wait(60), 2)


if __name__ == "__main__":
    unittest.main()
