"""The servers that examples need, each on a free port."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = os.environ.get("FRESHET_TEST_PYTHON") or sys.executable
SECONDS = 60


@contextlib.contextmanager
def environments(example):
    """Starts examples/EXAMPLE/server.py, if any, and the environments of its environments.yaml. Gives their address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = ROOT / "examples" / example
    with contextlib.ExitStack() as stack:
        package = _client(stack)
        if (folder / "server.py").exists():
            _run(stack, [PYTHON, folder / "server.py", str(port)])
            _await(port)
        listed = (folder / "environments.yaml").read_text().replace(":8000", f":{port}")
        (package / "environments.yaml").write_text(listed)
        server = _run(stack, [PYTHON, "-m", "freshet.environment_server", package / "environments.yaml",
                              "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, cwd=ROOT,
                      env={**os.environ, "PYTHONPATH": str(package)})
        yield server.stdout.readline().split()[2].rstrip(";")


@contextlib.contextmanager
def team(name="team", members=2):
    """Starts examples/team/NAME.py. Gives the addresses of its members."""
    with contextlib.ExitStack() as stack:
        package = _client(stack)
        server = _run(stack, [PYTHON, ROOT / "examples" / "team" / f"{name}.py", *["127.0.0.1:0"] * members],
                      stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(package)})
        listed = server.stdout.readline().split()[2:]
        yield [member.rstrip(",").split("=")[1] for member in listed]


def _client(stack):
    """A folder with the Python client."""
    package = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    client = ROOT / "clients" / "python"
    shutil.copytree(client / "freshet", package / "freshet", dirs_exist_ok=True)
    subprocess.run([PYTHON, client / "generate.py", ROOT / "proto", package], check=True)
    return package


def _run(stack, command, **options):
    """Starts a process that ends with the stack."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **{"stdout": subprocess.DEVNULL, **options})
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _await(port):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    sys.exit(f"nothing listens on port {port} after {SECONDS} s; is the example's package installed for {PYTHON}?")
