"""The peers of rollout.py: installs them once, writes the models once, and keeps one process for each. Protocol:
peers/serve.py."""
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys

from launcher import call

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "freshet"
LLAMA_CPP = "@node-llama-cpp/linux-x64@3.22.1"
# name: (program, format)
PEERS = {"vLLM": ("vllm_peer.py", ""), "llama.cpp BF16": ("llama_peer.py", "bf16"),
         "llama.cpp Q8_0": ("llama_peer.py", "q8_0"), "transformers": ("transformers_peer.py", "")}
ANSWER_S = 600


@contextlib.contextmanager
def locked(name):
    """One process at a time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install():
    """Installs vLLM, which brings transformers (4.8 GB), and llama.cpp (30 MB). Returns their folders."""
    with locked("rollout-peers"):
        print("installing vLLM, transformers and llama.cpp if they are missing", file=sys.stderr)
        done = subprocess.run([HERE.parent / "tests/vllm/setup.sh"], check=True, stdout=subprocess.PIPE, text=True)
        folder = CACHE / "llama-cpp-3.22.1"
        if not (folder / "complete").exists():
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, LLAMA_CPP],
                           check=True)
            (folder / "complete").touch()
    return pathlib.Path(done.stdout.strip()), folder / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"


def model_directory(program, model):
    """The model's directory, written once."""
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
    """A peer's process with one model. Answers one request at a time."""

    def __init__(self, name, folders, directory, threads, log):
        vllm, llama = folders
        program, form = PEERS[name]
        environment = {**os.environ, "PATH": f"{vllm}/bin:{os.environ['PATH']}", "LLAMA_CPP_FOLDER": str(llama)}
        if name == "vLLM":
            environment["LD_PRELOAD"] = str(vllm / "lib/libiomp5.so")
        self.name, self.log = name, log
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                [vllm / "bin/python", HERE / "peers" / program, directory, "--threads", str(threads), "--format", form],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)

    def await_answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            reason = "has ended" if ready else f"does not answer within {ANSWER_S} s"
            raise RuntimeError(f"{self.name} {reason}: {self.log.read_text(errors='replace')[-2000:].strip()}")
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.await_answer()

    def stop(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(folders, directory, threads, logs):
    """Peers by name, which have loaded the model."""
    with contextlib.ExitStack() as stack:
        peers = {}
        for name in PEERS:
            log = logs / f"peer-{name.replace(' ', '-')}.log"
            peers[name] = Peer(name, folders, directory, threads, log)
            stack.callback(peers[name].stop)
            peers[name].await_answer()
        yield peers
