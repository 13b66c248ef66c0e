"""The peers of rollout.py."""
import contextlib
import os
import subprocess
import sys

import peer_processes
from peer_processes import CACHE, HERE

LLAMA_CPP = "@node-llama-cpp/linux-x64@3.22.1"
# name: (program, format)
PEERS = {"vLLM": ("vllm_peer.py", ""), "llama.cpp BF16": ("llama_peer.py", "bf16"),
         "llama.cpp Q8_0": ("llama_peer.py", "q8_0"), "transformers": ("transformers_peer.py", "")}


def install():
    """Installs vLLM and llama.cpp (30 MB). Returns their folders."""
    with peer_processes.locked("rollout-peers"):
        print("installing vLLM, transformers and llama.cpp if they are missing", file=sys.stderr)
        vllm = peer_processes.install_vllm()
        folder = CACHE / "llama-cpp-3.22.1"
        if not (folder / "complete").exists():
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, LLAMA_CPP],
                           check=True)
            (folder / "complete").touch()
    return vllm, folder / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"


@contextlib.contextmanager
def running(folders, directory, threads, logs):
    """Peers by name, which have loaded the model."""
    vllm, llama = folders
    with contextlib.ExitStack() as stack:
        peers = {}
        for name, (program, form) in PEERS.items():
            environment = {"PATH": f"{vllm}/bin:{os.environ['PATH']}", "LLAMA_CPP_FOLDER": str(llama)}
            if name == "vLLM":
                environment["LD_PRELOAD"] = str(vllm / "lib/libiomp5.so")
            command = [vllm / "bin/python", HERE / "peers" / program, directory, "--threads", str(threads),
                       "--format", form]
            peers[name] = peer_processes.Peer(name, command, logs / f"peer-{name.replace(' ', '-')}.log", **environment)
            stack.callback(peers[name].stop)
        yield peers
