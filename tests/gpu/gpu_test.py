#!/usr/bin/env python3
"""Tests and measures Freshet on a GPU.

    gpu_test.py [--bin DIR] [--device cuda|cpu] [--json FILE] [--quick]

DIR is the build folder. Runs the tests of model, learner and engine on the device, NCCL between two processes that
share it, trains examples/arithmetic.yaml on it, by ranks too, which need a GPU each, and by a trainer and an engine that
share a GPU, and measures decoding, prefill and training steps beside the device's own peaks. Prints a table, then the
last line `N passed, N failed`. --quick: small measurements only, to check this program where there is no GPU. Python
3.11, no other packages.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from launcher import SupervisedCluster  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tests that take their device from FRESHET_TEST_DEVICE, and which of their cases do.
TESTS = {
    "model_torch_test": "*",
    "learner_test": "*",
    "native_engine_test": "*AtenAttention*",
}
SECONDS = 600  # of one program
# Log events of programs that compute with less than they could.
NOT_USED = ["cuda_kernels_not_used", "cuda_graph_failed", "gpu_not_used"]


class Runner:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(options.bin).resolve()
        self.rows, self.failed, self.passed = [], 0, 0
        self.environment = {**os.environ, "FRESHET_TEST_DEVICE": options.device}
        self.peaks = {}
        self.not_used = set()

    def program(self, name):
        for path in sorted(self.folder.rglob(name)):
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
        sys.exit(f"gpu_test: no program {name} in {self.folder}: run ./dev cuda")

    def run(self, *command):
        result = subprocess.run(list(map(str, command)), env=self.environment, capture_output=True, text=True,
                                timeout=SECONDS)
        for event in NOT_USED:
            if event in result.stdout + result.stderr:
                self.not_used.add(event)
        return result

    def gpus(self):
        return len(self.run("nvidia-smi", "--list-gpus").stdout.splitlines()) if shutil.which("nvidia-smi") else 0

    def row(self, name, value, remark, good=True):
        self.rows.append({"name": name, "value": value, "remark": remark, "passed": good})
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'}  {name:34} {value:>14}  {remark}", flush=True)

    def test(self, name, cases):
        try:
            result = self.run(self.program(name), f"--gtest_filter={cases}")
        except subprocess.TimeoutExpired:
            self.row(name, "hangs", f"no end after {SECONDS} s", good=False)
            return
        passed = re.search(r"\[  PASSED  \] (\d+)", result.stdout)
        failed = re.findall(r"\[  FAILED  \] (\S+?),? .*\(\d+ ms\)|\[  FAILED  \] (\S+) \(", result.stdout)
        failed = sorted({first or second for first, second in failed})
        skipped = len(re.findall(r"\[  SKIPPED \] \S+ \(", result.stdout))
        remark = f"{skipped} skipped" if skipped else ""
        if result.returncode != 0:
            remark = "failed: " + (", ".join(failed) or result.stderr.strip()[-300:] or f"exit {result.returncode}")
            with open(f"{name}.log", "w", encoding="utf-8") as log:
                log.write(result.stdout + result.stderr)
        self.row(name, f"{passed.group(1) if passed else 0} passed", remark, result.returncode == 0)

    def measure(self, name, program, *arguments):
        """Returns the numbers that the program prints, or None after a failure, which gets a row."""
        try:
            result = self.run(self.program(program), *arguments)
        except subprocess.TimeoutExpired:
            self.row(name, "hangs", f"no end after {SECONDS} s", good=False)
            return None
        if result.returncode != 0:
            self.row(name, "failed", (result.stderr.strip() or result.stdout.strip())[-300:], good=False)
            return None
        return json.loads(result.stdout)

    def share(self, flops, peak="bf16_flops"):
        return f"{flops / 1e12:.1f} TFLOP/s, {flops / self.peaks[peak]:.2f} of the device's products"

    def measure_peaks(self):
        peaks = self.measure("peaks", "rollout_bench", "device", "--device", self.options.device)
        if peaks is None:
            return False
        self.peaks = peaks
        self.row("bf16 matrix product", f"{peaks['bf16_flops'] / 1e12:.1f} TFLOP/s", "8192 x 8192 x 8192 on a GPU")
        self.row("copy", f"{peaks['bytes_per_second'] / 1e9:.0f} GB/s", "bytes read and written")
        return True

    def decode(self, model, groups, samples):
        quick = ["--prompt", 16, "--generate", 8] if self.options.quick else []
        name = f"decode, {model}, {groups * samples} samples"
        result = self.measure(name, "rollout_bench", "decode", "--device", self.options.device, "--model", model,
                              "--groups", groups, "--samples", samples, "--threads", os.cpu_count(), *quick)
        if result is None:
            return
        rate = result["decode_tokens"] / result["decode_seconds"]
        weights = 2 * (result["multiplied_parameters"] + result["head_parameters"])
        steps = result["decode_tokens"] / (groups * samples)
        share = weights * steps / result["decode_seconds"] / self.peaks["bytes_per_second"]
        self.row(name, f"{rate:,.0f} tok/s", f"{1000 * result['decode_seconds'] / steps:.2f} ms a step, weights read at "
                 f"{share:.2f} of the device's rate; {1000 * result['phases']['sampling'] / steps:.2f} ms sampling")

    def prefill(self, model, groups, prompt):
        name = f"prefill, {model}, {groups} x {prompt}"
        result = self.measure(name, "rollout_bench", "prefill", "--device", self.options.device, "--model", model,
                              "--groups", groups, "--prompt", prompt, "--threads", os.cpu_count())
        if result is None:
            return
        rate = result["tokens"] / result["seconds"]
        self.row(name, f"{rate:,.0f} tok/s", self.share(2 * result["multiplied_parameters"] * rate))

    def train(self, model, max_tokens):
        quick = ["--prompts", 2, "--samples", 2, "--longest", 64, "--rounds", 1] if self.options.quick else []
        name = f"GRPO step, {model}"
        result = self.measure(name, "trainer_bench", "step", "--device", self.options.device, "--model", model,
                              "--max-tokens", max_tokens, *quick)
        if result is None:
            return
        steps = sorted(result["steps"], key=lambda step: step["seconds"])
        step = steps[len(steps) // 2]
        self.row(name, f"{step['tokens'] / step['seconds']:,.0f} tok/s",
                 f"{step['seconds']:.3f} s; {self.share(step['model_flops'] / step['seconds'])}")

    def learn(self):
        name = "arithmetic learns"
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            result = self.run(self.program("freshet"), "local", ROOT / "examples/arithmetic.yaml", "--run-dir",
                              f"{folder}/run", "--set", f"trainer.device={self.options.device}", "--set",
                              f"rollout.device={self.options.device}", "--set", "checkpoint.every_steps=1000")
            seconds = time.monotonic() - start
            if result.returncode != 0:
                self.row(name, "failed", (result.stderr.strip() or result.stdout.strip())[-300:], good=False)
                return
            rows = [json.loads(line) for line in pathlib.Path(folder, "run/metrics.jsonl").read_text().splitlines()]
            score = [row["eval_accuracy"] for row in rows if "eval_accuracy" in row][-1]
            self.row(name, f"{score:.3f}", f"held-out reward after {seconds:.0f} s", score > 0.8)

    def few_steps(self):
        return [word for setting in (f"trainer.device={self.options.device}", f"rollout.device={self.options.device}",
                                     "trainer.steps=6", "warmup.sft.steps=5", "eval=null", "checkpoint.every_steps=3")
                for word in ("--set", setting)]

    def ranks(self, sharding):
        name = f"two ranks, sharding: {sharding}"
        with tempfile.TemporaryDirectory() as folder:
            result = self.run(self.program("freshet"), "local", ROOT / "examples/arithmetic.yaml", "--run-dir",
                              f"{folder}/run", *self.few_steps(), "--set", "trainer.ranks=2", "--set",
                              f"trainer.sharding={sharding}")
            if result.returncode != 0 or "event=ranks_formed ranks=2" not in result.stderr:
                self.row(name, "failed", (result.stderr.strip() or result.stdout.strip())[-300:], good=False)
                return
            rows = [json.loads(line) for line in pathlib.Path(folder, "run/metrics.jsonl").read_text().splitlines()]
            seconds = statistics.median(row["train_seconds"] for row in rows if "train_seconds" in row)
            self.row(name, f"{1000 * seconds:.0f} ms", "a step, with checkpoints")

    def cuda_ipc(self):
        name = "weights by CUDA IPC"
        with tempfile.TemporaryDirectory() as folder:
            cluster = SupervisedCluster(self.program("freshet"), folder)
            try:
                cluster.freshet("submit", str(ROOT / "examples/arithmetic.yaml"), "--id", "ipc", *self.few_steps(),
                                "--set", "weight_sync.transport=cuda_ipc", "--wait", timeout=SECONDS)
            except (Exception, SystemExit) as error:  # what the command says
                self.row(name, "failed", str(error)[-300:], good=False)
                return
            finally:
                cluster.down()
            logs = "".join(path.read_text(errors="replace") for path in pathlib.Path(folder).rglob("*.log"))
            reasons = sorted(set(re.findall(r"event=no_gpu_copy.*", logs)))
            used = "event=gpu_copy_used" in logs and not reasons
            self.row(name, "used" if used else "not used", "; ".join(reasons)[-300:], used)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build"))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    runner = Runner(options)
    if options.device == "cuda" and shutil.which("nvidia-smi"):
        described = runner.run("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
        print(described.stdout.strip(), flush=True)
    if not options.quick:
        for name, cases in TESTS.items():
            runner.test(name, cases)
        if options.device == "cuda":
            runner.test("nccl_ranks_test", "*")
    if runner.measure_peaks():
        if options.quick:
            runner.decode("T", 2, 2)
            runner.train("T", 512)
        else:
            for model in "T", "M":
                runner.decode(model, 8, 8)
            runner.decode("M", 1, 1)
            runner.decode("M", 32, 8)
            runner.prefill("M", 32, 512)
            for model in "T", "M":
                runner.train(model, 32768)
    if not options.quick:
        runner.learn()
    if options.device == "cpu" or runner.gpus() > 1:
        for sharding in ["full"] if options.quick else ["none", "optimizer", "full"]:
            runner.ranks(sharding)
    if options.device == "cuda" and shutil.which("redis-server"):
        runner.cuda_ipc()
    if options.device == "cuda":
        runner.row("kernels and graphs", "used" if not runner.not_used else "not used",
                   ", ".join(sorted(runner.not_used)), not runner.not_used)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"device": options.device, "rows": runner.rows}, out, indent=1)
    print(f"{runner.passed} passed, {runner.failed} failed")
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
