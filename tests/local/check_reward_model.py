#!/usr/bin/env python3
"""Serves a reward model with `freshet serve`, asks it, and trains jobs on its scores, also in a cluster.

usage: check_reward_model.py FOLDER_OF_PROGRAMS

The model's score of a text is known: a tenth of its last character if that is a digit, otherwise -1
for "[" and 0. Needs no packages.
"""

import json
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import counting_model  # noqa: E402
import launcher  # noqa: E402

TIMEOUT_S = 240
KEY = "sesame"
SCORES = {ord(str(digit)): digit / 10 for digit in range(10)} | {ord("["): -1.0}
TEMPLATE = "{% for m in messages %}[{{ m.content }}{% endfor %}"
JOB = """
name: check
seed: 1
model:
  init: random
  config: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4,
           num_key_value_heads: 2, intermediate_size: 64, max_position_embeddings: 32}
tokenizer: {type: char, alphabet: "0123456789="}
dataset: {type: copy, symbols: "0123456789", length: 3, train_rows: 500}
group_size: 4
prompts_per_step: 8
rollout: {max_new_tokens: 4}
reward: {timeout_ms: 60000, components: {preference: {type: reward_model, model: rm}}}
trainer: {steps: 2}
optimizer: {learning_rate: 1.0e-3}
output: {samples_per_step: 32}
"""


def score(text):
    return SCORES.get(ord(text[-1]), 0.0)


class RewardModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        counting_model.write_model(cls.folder / "rm", SCORES, TEMPLATE)
        (cls.folder / "key").write_text(KEY)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "1", "-subj", "/CN=rm", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", cls.folder / "tls.key", "-out", cls.folder / "tls.crt"],
            check=True, capture_output=True)
        cls.process = subprocess.Popen(
            [PROGRAMS / "freshet", "serve", cls.folder / "rm", "--listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0",
             "--api-key-file", cls.folder / "key", "--tls-cert", cls.folder / "tls.crt",
             "--tls-key", cls.folder / "tls.key"], stdout=subprocess.PIPE, text=True)
        line = cls.process.stdout.readline()
        if not line.startswith("serving on https://"):
            raise AssertionError(f"freshet serve printed {line!r}")
        cls.url, cls.probes = re.fullmatch(r"serving on (\S+) http=(\S+)\n", line).groups()
        cls.trust = ssl.create_default_context(cafile=cls.folder / "tls.crt")

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGTERM)
        code = cls.process.wait(timeout=TIMEOUT_S)
        cls.process.stdout.close()
        cls.scratch.cleanup()
        if code != 0:
            raise AssertionError(f"freshet serve exited with {code}")

    def post(self, path, body, key=KEY):
        """Returns the status and the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data,
            {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self.trust) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def pool(self, **members):
        return self.post("/pooling", {"model": "rm", "use_activation": False} | members)

    def test_scores_texts_ids_and_conversations(self):
        texts = ["a7", "3", "12=", "[" * 100]
        status, answer = self.pool(input=texts, task="classify")
        self.assertEqual(status, 200)
        self.assertEqual([row["index"] for row in answer["data"]], list(range(len(texts))))
        for row, text in zip(answer["data"], texts, strict=True):
            self.assertAlmostEqual(row["data"][0], score(text), places=5)
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(map(len, texts)))
        _, answer = self.pool(input=[1, 2, 3])
        self.assertEqual(len(answer["data"][0]["data"]), 1)
        _, answer = self.pool(messages=[{"role": "user", "content": "2+2"},
                                        {"role": "assistant", "content": "= 4"}])
        self.assertAlmostEqual(answer["data"][0]["data"][0], 0.4, places=5)

    def test_refuses_what_it_cannot_do(self):
        self.assertEqual(self.post("/pooling", {"input": "a"})[0], 400)
        self.assertEqual(self.pool(input="a" * (counting_model.CONTEXT + 1))[0], 400)
        self.assertEqual(self.pool(input="a" * (2 << 20))[0], 400)
        self.assertEqual(self.post("/pooling", b'{"input": "' + b"a" * (5 << 20) + b'"}')[0], 413)
        self.assertEqual(self.post("/pooling", b'{"input": "\xff"}')[0], 400)
        self.assertEqual(self.post("/pooling", b"[" * 100_000)[0], 400)
        self.assertEqual(self.post("/pooling", {"input": "a"}, key="guess")[0], 401)
        status, answer = self.post("/v1/completions", {"prompt": "a"})
        self.assertEqual(status, 404)
        self.assertIn("rm is a reward model", answer["error"]["message"])
        (self.folder / "ids").write_text("[1, 2]\n")
        for command in (["generate", "--max-new-tokens", "1"], ["score"],
                        ["score", "--engine", "trainer"]):
            result = subprocess.run(
                [PROGRAMS / "freshet", command[0], self.folder / "rm", "--ids",
                 self.folder / "ids", *command[1:]], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("generates no text", result.stderr)

    def test_probes_and_metrics_have_a_port_of_their_own(self):
        def get(path):
            with urllib.request.urlopen(f"http://{self.probes}{path}", timeout=TIMEOUT_S) as answer:
                return answer.read().decode()

        def count(outcome):
            prefix = f'freshet_openai_requests_total{{outcome="{outcome}"}} '
            return [float(line.removeprefix(prefix)) for line in get("/metrics").splitlines()
                    if line.startswith(prefix)][0]

        self.assertEqual(get("/healthz"), "ok\n")
        self.assertEqual(get("/readyz"), "ready\n")
        ok, invalid = count("ok"), count("invalid")
        self.pool(input="a")
        self.post("/pooling", {"input": "a"})
        self.assertEqual((count("ok"), count("invalid")), (ok + 1, invalid + 1))
        self.assertIn("freshet_tls_certificate_expiry_timestamp_seconds", get("/metrics"))

    def test_other_addresses_than_loopback_need_tls_and_a_key(self):
        tls = ["--tls-cert", self.folder / "tls.crt", "--tls-key", self.folder / "tls.key"]
        for flags, part in ((tls, "give --api-key-file"), (tls[:2], "--tls-key is missing"),
                            (["--api-key-file", self.folder / "key"], "give --tls-cert")):
            result = subprocess.run(
                [PROGRAMS / "freshet", "serve", self.folder / "rm", "--listen", "0.0.0.0:0",
                 *flags], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(part, result.stderr)

    def run_job(self, *args):
        return subprocess.run(
            [PROGRAMS / "freshet", "local", *args, "--reward-model", self.url, "--reward-model-ca",
             self.folder / "tls.crt", "--reward-model-token-file", self.folder / "key"],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def test_a_job_without_calls_left_fails_and_a_resume_with_more_completes_it(self):
        (self.folder / "job.yaml").write_text(JOB)
        run = self.folder / "limited"
        key = "reward.components.preference.max_calls"
        failed = self.run_job(self.folder / "job.yaml", "--run-dir", run, "--set", f"{key}=40")
        self.assertEqual(failed.returncode, 5, failed.stderr)
        self.assertIn(f"{key}: all 40 calls are used; raise it and resume", failed.stderr)
        resumed = self.run_job("--resume", run, "--set", f"{key}=64")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        lines = (run / "samples.jsonl").read_text().splitlines()
        self.assertEqual(len(lines), 64)
        for sample in map(json.loads, lines):
            self.assertAlmostEqual(sample["reward"], score("[" + sample["completion"]), places=5)

    def test_a_job_is_rewarded_with_its_scores(self):
        (self.folder / "job.yaml").write_text(JOB)
        result = self.run_job(self.folder / "job.yaml", "--run-dir", self.folder / "run")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = (self.folder / "run" / "samples.jsonl").read_text().splitlines()
        rewards = set()
        for sample in map(json.loads, lines):
            expected = score("[" + sample["completion"])
            self.assertAlmostEqual(sample["reward"], expected, places=5, msg=sample)
            rewards.add(expected)
        self.assertEqual(len(lines), 64)
        self.assertGreater(len(rewards), 3)

    @unittest.skipUnless(shutil.which("redis-server"), "not installed: redis-server")
    def test_a_cluster_runs_the_server_that_its_jobs_ask(self):
        def metrics(server):
            with urllib.request.urlopen(f"http://{server['http']}/metrics", timeout=TIMEOUT_S) as page:
                return page.read().decode()

        (self.folder / "job.yaml").write_text(JOB)
        with tempfile.TemporaryDirectory() as state:
            cluster = launcher.SupervisedCluster(
                PROGRAMS / "freshet", state, "--envs", "0", "--model-server",
                f"rm={self.folder / 'rm'}", "--reward-model-server", "rm")
            try:
                first = cluster.process(role="model", pool="rm")
                self.assertIn(f"model-rm-1 ready ready {first['process']['pid']} {first['api']}",
                              " ".join(cluster.freshet("cluster", "status").split()))
                cluster.signal(signal.SIGKILL, role="model")
                cluster.freshet("submit", self.folder / "job.yaml", "--id", "job")
                self.assertIn("SUCCEEDED", cluster.freshet("watch", "job", timeout=TIMEOUT_S))
                again = cluster.process(role="model", pool="rm")
                self.assertEqual((again["restarts"], again["api"]), (1, first["api"]))
                self.assertRegex(metrics(again), r'openai_requests_total\{outcome="ok"\} [1-9]')
                self.assertIn("freshet_openai_serving 1\n", metrics(again))
            finally:
                cluster.down()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAMS = pathlib.Path(sys.argv.pop()).resolve()
    unittest.main()
