#!/usr/bin/env python3
"""Weights between processes with PyTorch, as peers of weights.py. The trainer's process sends one bf16 tensor to `readers`
others: by a broadcast of torch.distributed over Gloo, or as a safetensors file in memory (/dev/shm), which the others
read whole. Protocol: serve.py; `--threads` is the number of readers, and the model directory is not used."""
import ctypes
import datetime
import multiprocessing
import os
import pathlib
import signal
import tempfile

import serve

options = serve.arguments(__doc__)
FOLDER = "/dev/shm"
PR_SET_PDEATHSIG = 1


def join(rank, rendezvous):
    import torch
    import torch.distributed
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                                         world_size=options.threads + 1, timeout=datetime.timedelta(minutes=5))
    return torch


def reader(rank, rendezvous, elements, pipe):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    torch = join(rank, rendezvous)
    import safetensors.torch
    weights = torch.zeros(elements, dtype=torch.bfloat16)
    pipe.send(True)
    while True:
        workload, path = pipe.recv()
        if workload == "broadcast":
            torch.distributed.broadcast(weights, 0)
        else:
            weights = safetensors.torch.load(pathlib.Path(path).read_bytes())["weights"]
        pipe.send(float(weights[-1]))


def load():
    rendezvous = os.path.join(tempfile.mkdtemp(prefix="freshet-weights-peer-"), "group")
    elements = int(options.format) // 2
    context = multiprocessing.get_context("fork")
    pipes = []
    for rank in range(1, options.threads + 1):
        ours, theirs = context.Pipe()
        context.Process(target=reader, args=(rank, rendezvous, elements, theirs), daemon=True).start()
        pipes.append(ours)
    torch = join(0, rendezvous)
    for pipe in pipes:
        pipe.recv()
    return torch, torch.randn(elements).to(torch.bfloat16), pipes


def send(loaded, workload, write, path=""):
    _, weights, pipes = loaded
    weights[-1] += 1
    watch = serve.Stopwatch()
    if path:
        write()
    for pipe in pipes:
        pipe.send((workload, path))
    if not path:
        write()
    for pipe in pipes:
        assert pipe.recv() == float(weights[-1]), "other weights have arrived"
    return {"publish_seconds": watch.seconds()}


def broadcast(loaded):
    torch, weights, _ = loaded
    return send(loaded, "broadcast", lambda: torch.distributed.broadcast(weights, 0))


def safetensors_file(loaded):
    import safetensors.torch
    path = os.path.join(FOLDER, f"freshet-weights-peer-{os.getpid()}.safetensors")
    try:
        return send(loaded, "read", lambda: safetensors.torch.save_file({"weights": loaded[1]}, path), path)
    finally:
        os.unlink(path)


if __name__ == "__main__":
    serve.serve(load, broadcast=broadcast, safetensors=safetensors_file)
