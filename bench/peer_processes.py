"""Peers of the benches: folders that are installed once, models that are written once, and processes that answer one
request at a time. Protocol: peers/serve.py."""
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess

from launcher import call

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "freshet"
ANSWER_S = 600


@contextlib.contextmanager
def locked(name):
    """One process at a time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install_vllm():
    """Installs vLLM, which brings PyTorch and transformers (4.8 GB). Returns its folder."""
    done = subprocess.run([HERE.parent / "tests/vllm/setup.sh"], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(done.stdout.strip())


def model_directory(program, model):
    """The model's directory, written once by rollout_bench."""
    folder = CACHE / f"bench-model-{model}-1"
    with locked(folder.name):
        if not folder.exists():
            unfinished = folder.with_suffix(".part")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            call(program, "write", "--model", model, "--directory", unfinished)
            unfinished.rename(folder)
    return folder


class Peer:
    """A peer's process with one model. Ready when it is constructed."""

    def __init__(self, name, command, log, answer_s=ANSWER_S, **environment):
        self.name, self.log, self.answer_s = name, log, answer_s
        with open(log, "w") as errors:
            self.process = subprocess.Popen([*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                            text=True, env={**os.environ, **environment})
        try:
            self.await_answer()
        except BaseException:
            self.stop()
            raise

    def await_answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], self.answer_s)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            reason = "has ended" if ready else f"does not answer within {self.answer_s} s"
            raise RuntimeError(f"{self.name} {reason}: {self.log.read_text(errors='replace')[-2000:].strip()}")
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.await_answer()

    def stop(self):
        self.process.kill()
        self.process.wait()
