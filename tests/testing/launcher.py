"""Runs clusters of real processes on this machine, for tests and benchmarks. Linux and Python 3.11; no other packages.

The processes end with this program, also when it fails or receives SIGTERM.
"""
import atexit
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDIS_ROLES = ROOT / "helm" / "freshet" / "redis-roles.acl"
READY = re.compile(r"^ready \w+ grpc=(\S+) http=(\S*)", re.MULTILINE)
SECONDS = 120  # limit of a start and of a command, far above what they take on two busy cores
_given, _giving = collections.deque(maxlen=4096), threading.Lock()

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs finally blocks and atexit


def free_port():
    """A free port below the ephemeral range, so that no outgoing connection takes it before it is used."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as sock, _giving:
            with contextlib.suppress(OSError):
                sock.bind(("127.0.0.1", port))
                if port not in _given:
                    _given.append(port)
                    return port


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def await_true(what, condition, seconds=SECONDS, why=lambda: ""):
    """Polls until `condition()`. After `seconds`, raises RuntimeError with the text of `why()`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds} s{why()}")
        time.sleep(0.02)


def call(*command, environment=None, folder=None, timeout=SECONDS):
    """Runs a command, which must succeed, and returns its stdout."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment, cwd=folder)
    if done.returncode != 0:
        words[0] = os.path.basename(words[0])
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def role_of(name):
    return name.split("-")[0]


class Processes:
    """A redis-server and processes ROLE-N, each with a log FOLDER/NAME.log.

    binaries: folder of the programs. users: whether Redis has the users of helm/freshet/redis-roles.acl, as whom the
    roles log in. environment: variables of all processes. Thread-safe. A context manager stops the processes.
    """

    client_flags = ()  # of the freshet command

    def __init__(self, folder, binaries=".", users=False, environment=()):
        self.folder, self.binaries, self.users = pathlib.Path(folder), pathlib.Path(binaries).resolve(), users
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder), **dict(environment)}
        self.redis_port = free_port()
        self.grpc, self.http = {}, {}  # addresses by name
        self.processes = {}  # the latest by name
        self.stopped = False
        self._started, self._lock = [], threading.Lock()
        (self.folder / "redis").mkdir()
        if users:
            self._write_users()
        atexit.register(self.stop)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # What subclasses override.

    def program(self, role):
        return self.binaries / f"freshet-{role}"

    def flags(self, name):
        """Further flags of a role's process."""
        return []

    def redis_address(self, name):
        """The address at which the process finds Redis."""
        return f"127.0.0.1:{self.redis_port}"

    # Starting.

    def command(self, name):
        """The command line of redis or of ROLE-N."""
        if name == "redis":
            acl = ["--aclfile", self.folder / "users.acl"] if self.users else []
            return ["redis-server", "--port", self.redis_port, "--bind", "127.0.0.1", "--dir", self.folder / "redis",
                    "--appendonly", "yes", "--appendfsync", "always", "--save", "", *acl]
        role = role_of(name)
        command = [self.program(role), "--name", name, *self.flags(name)]
        if role == "controller":  # other processes have any free ports by default
            for flag in {"--listen", "--http-listen"}.difference(command):
                command += [flag, "127.0.0.1:0"]
        if role != "env":
            command += ["--redis", self.redis_address(name)]
            if self.users:
                command += ["--redis-user", role, "--redis-password-file", self.folder / f"{role}.password"]
        if role != "controller":
            controllers = [address for other, address in self.grpc.items() if role_of(other) == "controller"]
            command += ["--controller", ",".join(controllers)]
        return command + (["--state-dir", self.folder / "state"] if role == "trainer" else [])

    def start(self, name, *command):
        """Starts a process, by default with `command(name)`."""
        words = [str(word) for word in command or self.command(name)]
        with open(self.folder / f"{name}.log", "ab") as log, self._lock:
            if self.stopped:
                raise RuntimeError(f"{name} is not started: the cluster is stopped")
            # A process group of its own, to stop its children too.
            process = subprocess.Popen(words, stdout=log, stderr=log, env=self.environment, process_group=0)
            self.processes[name] = process
            self._started.append(process)

    def start_redis(self, *settings):
        """Starts redis-server and waits until it listens. Every write is synced to disk unless `settings` differ."""
        self.start("redis", *self.command("redis"), *settings)
        self.await_ready("redis", lambda: listens(self.redis_port))

    def start_roles(self, *names):
        """Starts processes side by side and waits until all are ready."""
        for name in names:
            self.start(name)
        for name in names:
            self.await_ready(name, lambda: READY.search(self.log(name)))
            self.grpc[name], self.http[name] = READY.search(self.log(name)).groups()

    def await_ready(self, name, condition):
        """Raises RuntimeError with the end of the log if the process ends or takes longer than SECONDS."""
        def end_of_log():
            return f"; log of {name}: {self.log(name)[-2000:].strip()}"

        def ready():
            if self.processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended{end_of_log()}")
            return condition()
        await_true(f"{name} ready", ready, SECONDS, end_of_log)

    # Using and stopping.

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def freshet(self, *arguments, timeout=SECONDS):
        """Runs the command with the first controller and returns its stdout."""
        return call(self.binaries / "freshet", *arguments, "--server", self.grpc["controller-0"], *self.client_flags,
                    environment=self.environment, timeout=timeout)

    def signal(self, name, number):
        """Returns False if the process has ended."""
        process = self.processes.get(name)
        if process is None or process.poll() is not None:
            return False
        process.send_signal(number)
        return True

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        if name in self.processes:
            self.processes[name].wait()

    def stop(self):
        """Kills all processes that were started, also replaced ones."""
        atexit.unregister(self.stop)
        with self._lock:
            self.stopped = True
            for process in self._started:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            for process in self._started:
                process.wait()

    def _write_users(self):
        """As in a real cluster, except that a role's password is its name and the default user needs none."""
        lines = ["user default on nopass ~* &* +@all"]
        for role, rules in re.findall(r"^(\w+) (.+)", REDIS_ROLES.read_text(), re.MULTILINE):
            lines.append(f"user {role} on >{role} {rules}")
            (self.folder / f"{role}.password").write_text(role)
        (self.folder / "users.acl").write_text("\n".join(lines) + "\n")


class SupervisedCluster:
    """A cluster of `freshet cluster up FLAGS` with its state in `folder`."""

    def __init__(self, program, folder, *flags, environment=()):
        self.program = str(program)
        homes = {"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.environment = {**os.environ, **homes, **dict(environment)}
        self.environment.pop("FRESHET_SERVER", None)
        atexit.register(self.down)
        try:
            self.freshet("cluster", "up", "--port", "0", *flags)
            self.server = self.environment["FRESHET_SERVER"] = self.status()["controller"]
        except BaseException:
            self.down()
            raise

    def freshet(self, *arguments, timeout=SECONDS):
        """Runs the command with this cluster, which must succeed, and returns its stdout."""
        return call(self.program, *arguments, environment=self.environment, timeout=timeout)

    def status(self):
        return json.loads(self.freshet("cluster", "status", "--json"))

    def process(self, **fields):
        """The process with these fields in the status."""
        (found,) = (process for process in self.status()["processes"] if fields.items() <= process.items())
        return found

    def signal(self, number, **fields):
        os.kill(self.process(**fields)["process"]["pid"], number)

    def down(self):
        atexit.unregister(self.down)
        self.freshet("cluster", "down", timeout=180)
