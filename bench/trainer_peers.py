"""The peers of trainer.py: TRL and PyTorch with transformers' model."""
import subprocess
import sys

import peer_processes
from peer_processes import CACHE, HERE

TRL = ["trl==1.16.0", "accelerate==1.15.0", "datasets==5.2.0"]
# Kind: (format of the weights, options of a step).
TORCH = {
    "PyTorch fp32": ("fp32", {"rows": 8, "autocast": False}),
    "PyTorch bf16, padded": ("bf16", {"rows": 8, "autocast": False}),
    "PyTorch bf16, one by one": ("bf16", {"rows": 1, "autocast": False}),
    "PyTorch autocast, padded": ("fp32", {"rows": 8, "autocast": True}),
    "PyTorch autocast, one by one": ("fp32", {"rows": 1, "autocast": True}),
}
TORCH_BF16 = [kind for kind in TORCH if "fp32" not in kind]
ONCE = ["PyTorch fp32", "TRL fp32"]  # slow, and without a goal


def install():
    """Installs vLLM's PyTorch and transformers, and TRL beside them. Returns Python and the folder of TRL."""
    with peer_processes.locked("trainer-peers"):
        print("installing PyTorch, transformers and TRL if they are missing", file=sys.stderr)
        python = peer_processes.install_vllm() / "bin/python"
        folder = CACHE / "trl-1.16.0"
        if not (folder / "complete").exists():
            pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--target", folder]
            subprocess.run([*pip, "--no-deps", *TRL], check=True)
            subprocess.run([*pip, "--no-deps", "pyarrow==24.0.0", "pandas==2.3.3", "dill==0.4.1", "multiprocess==0.70.19",
                            "xxhash==3.6.0", "python-dateutil==2.9.0.post0", "pytz==2025.2", "six==1.17.0",
                            "tzdata==2025.2"], check=True)
            (folder / "complete").touch()
    return python, folder


def kinds(stack, rollout_bench, threads, batch, group, logs):
    """Functions that run each kind once; `stack` ends the processes."""
    python, trl = install()
    directory = peer_processes.model_directory(rollout_bench, "T")

    def start(name, program, form):
        command = [python, HERE / "peers" / program, directory, "--threads", str(threads), "--format", form]
        peer = peer_processes.Peer(name, command, logs / f"peer-{name.replace(' ', '-')}.log", PYTHONPATH=str(trl))
        stack.callback(peer.stop)
        return peer

    torch = {form: start(f"PyTorch-{form}", "torch_trainer_peer.py", form) for form in ("bf16", "fp32")}
    runs = {kind: (lambda form=form, options=options: torch[form].ask(workload="step", batch=str(batch), group=group,
                                                                      **options))
            for kind, (form, options) in TORCH.items()}
    for kind, form in (("TRL", ""), ("TRL fp32", "fp32")):
        peer = start(kind, "trl_peer.py", form)
        runs[kind] = lambda peer=peer: peer.ask(workload="step", batch=str(batch), group=group)
    return runs
