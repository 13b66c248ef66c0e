#!/usr/bin/env python3
"""Runs hostile programs against a sandbox. `./dev escape` runs this.

    escape.py [--bin DIR] [--address HOST:PORT] [--mixed N] [--only TEXT] [--isolation LEVEL] [--without-landlock] [--skip]

Starts freshet-sandbox of --bin, or uses one that runs on this machine. Each attack must be contained, leave no process
and no file, and honest programs must run afterwards. Then N (1,000) hostile and honest programs run at the same time,
and no verdict of an honest one may be wrong. The last line is `N passed, N failed`. --without-landlock makes the kernel
refuse Landlock, so that --isolation any uses namespaces. With --skip it exits with 77 where the sandbox refuses to start
because programs cannot be confined.
"""
import argparse
import concurrent.futures
import contextlib
import glob
import http.client
import json
import os
import pathlib
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import hostile

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 120
WORKERS = 2
SKIPPED = 77


class Sandbox:
    def __init__(self, address):
        self.address = address
        self._local = threading.local()

    def call(self, path, body):
        connection = getattr(self._local, "connection", None) or http.client.HTTPConnection(self.address, timeout=SECONDS)
        self._local.connection = connection
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def run(self, language, code, stdin="", timeout=10.0):
        body = {"language": language, "code": code, "stdin": stdin, "run_timeout": timeout, "compile_timeout": 20}
        return self.call("/run_code", body)


class Host:
    """What the attacks may look for, and what they may leave."""

    def __init__(self, folder):
        self.folder, self.service = folder, None
        self.secret = secrets.token_hex(16)
        self.secret_file = folder / "secret"
        self.secret_file.write_text(self.secret)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(0)

    def fill(self, code):
        return code.replace("SECRET_FILE", str(self.secret_file)).replace("PORT", str(self.server.getsockname()[1]))

    def strays(self):
        """Processes below the service other than its workers and their Python processes."""
        if self.service is None:
            return []  # it was not started here
        children = {}
        for path in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = pathlib.Path(path).read_text().rsplit(")", 1)[1].split()
                children.setdefault(int(fields[1]), []).append((int(path.split("/")[2]), fields[0]))
        found = []
        workers = [pid for pid, _ in children.get(self.service, ())]
        for worker in workers:
            if b"sandbox-worker" not in self.command(worker):
                found.append(worker)
            below = [pid for pid, _ in children.get(worker, ())]
            python = [pid for pid in below if b"The warm Python process" in self.command(pid)]
            found += [pid for pid in below if pid not in python] + python[1:]
            found += [pid for parent in below for pid, _ in children.get(parent, ())]
        return [(pid, self.command(pid)[:100]) for pid in found]

    @staticmethod
    def command(pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    def faults(self):
        faults = [f"process {pid} {command!r} is left" for pid, command in self.strays()]
        with contextlib.suppress(BlockingIOError):
            self.server.accept()
            faults.append("a connection came out of the sandbox")
        # "root" is where a worker mounts what programs may read.
        left = [path for path in (self.folder / "work").glob("worker-*/*") if path.name != "root"]
        faults += [f"{path} is left" for path in left]
        faults += [f"{path} exists" for path in glob.glob("/tmp/escaped*") + glob.glob("/dev/shm/escaped*")
                   + glob.glob("/usr/bin/escaped*") + glob.glob(str(self.folder / "work/*/escaped*"))]
        return faults


@contextlib.contextmanager
def start(options, folder, secret):
    binaries = pathlib.Path(options.bin)
    wrapper = [sys.executable, str(HERE / "without_landlock.py")] if options.without_landlock else []
    work = folder / "work"
    with open(folder / "sandbox.log", "w") as log:
        process = subprocess.Popen(
            [*wrapper, str(binaries / "freshet-sandbox"), "--listen", "127.0.0.1:0", "--workers", str(WORKERS), "--folder", str(work),
             "--isolation", options.isolation, "--memory-mb", "256", "--folder-mb", "32", "--output-kb", "256"],
            stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "SECRET": secret})
    try:
        line = process.stdout.readline()
        if not line.startswith("ready sandbox http="):
            log = (folder / "sandbox.log").read_text()
            print(f"escape: the sandbox does not start:\n{log}")
            sys.exit(SKIPPED if options.skip and "programs cannot be confined here" in log else 1)
        # The other workers start later. Their first files and processes would look like leaks.
        deadline = time.monotonic() + SECONDS
        while (folder / "sandbox.log").read_text().count("event=sandbox_worker_started") < WORKERS:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"escape: not all workers start:\n{(folder / 'sandbox.log').read_text()}")
            time.sleep(0.05)
        yield line.strip().split("=")[1], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        process.stdout.close()


def fit(sandbox):
    """What is wrong with honest programs now."""
    for language, code, stdin, expected in hostile.HONEST:
        status, answer = sandbox.run(language, code, stdin)
        got = (answer.get("run_result") or {}).get("stdout", "").strip()
        if status != 200 or got != expected:
            return [f"an honest {language} program gives {got!r}, not {expected!r}: {status} {answer}"]
    return []


def attack(sandbox, host, case):
    status, answer = sandbox.run(case.language, host.fill(case.code), timeout=case.timeout)
    text = json.dumps(answer)
    faults = []
    if status != 200:
        return [f"status {status}: {text[:300]}"]
    run = answer["run_result"]
    if run is None and not case.compiles:
        faults.append(f"it has not run: {text[:600]}")
    elif not case.contained(run, host):
        faults.append(f"not contained: {text[:600]}")
    if host.secret in text or "root:" in text:
        faults.append("a secret came out")
    return faults + host.faults()


def submission(code, test, language="python"):
    return {"dataset": "escape", "id": 1, "completion": f"```{language}\n{code}\n```",
            "config": {"language": language, "run_timeout": 5, "provided_data": {"test": test}}}


def cheats(sandbox):
    """Programs that want a good verdict. Yields name and whether they were refused."""
    answer = secrets.token_hex(16)
    test = [{"input": {"stdin": "question\n"}, "output": {"stdout": answer}}]
    searching = ("import os, glob\nfor folder, _, files in os.walk('/'):\n    for name in files:\n"
                 "        if folder.startswith(('/usr', '/lib')): continue\n"
                 "        try: print(open(os.path.join(folder, name), errors='replace').read()[:1000])\n"
                 "        except OSError: pass\n")
    asserts = {"code": "assert f(2) == 4\nassert f(3) == 9"}
    for name, body, wanted in (
            ("reading the answer", submission(searching, test), False),
            ("printing to every descriptor", submission(
                f"import os\nfor n in range(256):\n    try: os.write(n, b'{{\"accepted\": true}}')\n    except OSError: pass\n", test), False),
            ("leaving before the assertions", submission("import os\nos._exit(0)", asserts), False),
            ("leaving with success", submission("import sys\nsys.exit(0)", asserts), False),
            ("replacing the checks", submission("raise SystemExit", asserts), False),
            ("an honest solution", submission("def f(x): return x * x", asserts), True),
            ("an honest answer", submission("print(input()[::-1])", [{"input": {"stdin": "abc"}, "output": {"stdout": "cba\n"}}]), True),
    ):
        status, verdict = sandbox.call("/submit", body)
        good = status == 200 and verdict["accepted"] is wanted
        yield name, [] if good else [f"status {status}: {json.dumps(verdict)[:600]}"]


def mixed(sandbox, host, count):
    """Runs hostile and honest programs together. Returns the wrong verdicts and how many ran."""
    choice = random.Random(1)
    quick = [case for case in hostile.ATTACKS if case.language in ("python", "bash")]
    jobs = [("honest", choice.choice(hostile.HONEST)) if choice.random() < 0.7 else ("hostile", choice.choice(quick))
            for _ in range(count)]

    def one(job):
        kind, case = job
        if kind == "hostile":
            status, answer = sandbox.run(case.language, host.fill(case.code), timeout=1.0)
            if status != 200 or host.secret in json.dumps(answer):
                return f"{case.name}: {status} {json.dumps(answer)[:300]}"
            return None
        language, code, stdin, expected = case
        status, answer = sandbox.run(language, code, stdin)
        got = (answer.get("run_result") or {}).get("stdout", "").strip()
        return None if status == 200 and got == expected else f"honest {language}: {status} {json.dumps(answer)[:600]}"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return [fault for fault in pool.map(one, jobs) if fault] + host.faults()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=str(HERE.parents[1] / "build" / "bin"))
    parser.add_argument("--address", help="HOST:PORT of a sandbox that runs already")
    parser.add_argument("--mixed", type=int, default=1000)
    parser.add_argument("--only", default="", help="attacks whose name has this text")
    parser.add_argument("--isolation", default="process", help="level of the sandbox")
    parser.add_argument("--without-landlock", action="store_true", help="let the kernel refuse Landlock")
    parser.add_argument("--skip", action="store_true", help="exit with 77 where programs cannot be confined")
    options = parser.parse_args()
    passed = failed = 0

    def report(name, faults, seconds):
        nonlocal passed, failed
        passed, failed = passed + (not faults), failed + bool(faults)
        print(f"{'ok' if not faults else 'FAILED'}: {name} ({seconds:.1f} s)", flush=True)
        for fault in faults[:5]:
            print(f"  {fault}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chmod(folder, 0o755)
        host = Host(folder)
        running = contextlib.nullcontext((options.address, None)) if options.address else \
            start(options, folder, host.secret)
        with running as (address, host.service):
            sandbox = Sandbox(address)
            for case in [case for case in hostile.ATTACKS if options.only in case.name]:
                begin = time.monotonic()
                faults = attack(sandbox, host, case)
                report(case.name, faults + fit(sandbox), time.monotonic() - begin)
            for name, faults in cheats(sandbox) if not options.only else ():
                report(name, faults, 0)
            if options.mixed and not options.only:
                begin = time.monotonic()
                faults = mixed(sandbox, host, options.mixed)
                report(f"{options.mixed} hostile and honest programs together", faults, time.monotonic() - begin)
        print(f"{passed} passed, {failed} failed")
        if failed and not options.address:
            print((folder / "sandbox.log").read_text()[-3000:], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
