"""A cluster of real processes with mutual TLS and an authorization policy, scraped by Prometheus."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "helm" / "dashboards"))
from prometheus_client import Prometheus  # noqa: E402

RULES = ROOT / "helm" / "freshet" / "rules" / "freshet.yaml"
ROLES = ("controller", "rollout", "reward", "env", "trainer")
MEMBER = "spiffe://freshet/member"
POLICY = {"name": "watching", "allow_rules": [{"name": "members", "source": {"principals": [MEMBER]}}]}
USERS = {"users": [{"name": "watcher", "role": "viewer", "token_sha256": hashlib.sha256(b"watcher's token").hexdigest()}]}
READY = re.compile(r"^ready \w+ grpc=(\S+) http=(\S+)", re.MULTILINE)
SECONDS = 120  # far longer than any operation here takes on two busy cores
NEEDED = ("redis-server", "openssl", "prometheus")


def missing():
    """Returns the programs of NEEDED that are not installed."""
    return [name for name in NEEDED if shutil.which(name) is None]


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def await_true(what, condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Certificates:
    """Creates member.pem and member.key, signed by ca.pem, in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        names = f"subjectAltName=IP:127.0.0.1,DNS:localhost,URI:{MEMBER}"
        (folder / "names").write_text(names + "\n")
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        self._openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=watching", "-keyout", "ca.key", "-out", "ca.pem")
        self._openssl("req", "-new", *key, "-subj", "/CN=member", "-keyout", "member.key", "-out", "member.csr")
        self._openssl("x509", "-req", "-in", "member.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", "2", "-extfile", "names", "-out", "member.pem")

    def flags(self, prefix):
        return [f"{prefix}cert", str(self.folder / "member.pem"), f"{prefix}key", str(self.folder / "member.key"),
                f"{prefix}ca", str(self.folder / "ca.pem")]

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


class Cluster:
    """A context manager that stops all its processes at the end."""

    def __init__(self, binaries, folder, rollouts=2):
        self.binaries, self.folder = pathlib.Path(binaries).resolve(), pathlib.Path(folder)
        self.rollouts = rollouts
        self.names = ["controller-0", *(f"rollout-{i}" for i in range(rollouts)), "reward-0", "env-0", "trainer-0"]
        self.processes, self.grpc, self.http = {}, {}, {}
        self.prometheus = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGKILL)
            process.wait()

    def freshet(self, *arguments):
        """Runs the command, which must succeed, and returns its stdout."""
        command = [self.binaries / "freshet", *arguments, "--server", self.grpc["controller-0"],
                   *self.certificates.flags("--")]
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if result.returncode != 0:
            raise RuntimeError(f"freshet {' '.join(arguments)}: exit {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def submit(self, job, text):
        path = self.folder / f"{job}.yaml"
        path.write_text(text)
        self.freshet("submit", str(path), "--id", job)

    def job(self, job):
        return json.loads(self.freshet("get", job, "-o", "json"))

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self):
        self.certificates = Certificates(self.folder)
        (self.folder / "policy.json").write_text(json.dumps(POLICY))
        (self.folder / "users.json").write_text(json.dumps(USERS))
        self._start_redis()
        for name in self.names:
            self._start_member(name)
        ready = len(self.names) - 1
        await_true("workers", lambda: self._workers() == ready)
        self._start_prometheus()

    def _workers(self):
        """Returns the number of ready workers of all roles."""
        with urllib.request.urlopen(f"http://{self.http['controller-0']}/metrics", timeout=10) as page:
            text = page.read().decode()
        return sum(float(value) for value in re.findall(r'^freshet_workers\{[^}]*state="ready"[^}]*\} (\S+)', text, re.M))

    def _launch(self, name, command):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log,
                                                    env={**os.environ, "XDG_STATE_HOME": str(self.folder)})

    def _start_redis(self):
        (self.folder / "redis").mkdir()
        self.redis = f"127.0.0.1:{free_port()}"
        self._launch("redis", ["redis-server", "--port", self.redis.split(":")[1], "--bind", "127.0.0.1", "--dir",
                               self.folder / "redis", "--appendonly", "yes", "--appendfsync", "always", "--save", "",
                               "--maxmemory", "512mb", "--maxmemory-policy", "noeviction"])
        await_true("redis-server", lambda: "Ready to accept connections" in self.log("redis"))

    def _start_member(self, name):
        role = name.split("-")[0]
        command = [self.binaries / f"freshet-{role}", "--name", name, "--listen", "127.0.0.1:0",
                   "--http-listen", "127.0.0.1:0", "--authz-policy", self.folder / "policy.json",
                   *self.certificates.flags("--tls-")]
        if role != "env":
            command += ["--redis", self.redis]
        if role == "controller":
            command += ["--users", self.folder / "users.json", "--pool-bounds", f"default={self.rollouts}..{self.rollouts}"]
        else:
            command += ["--controller", self.grpc["controller-0"]]
        if role == "trainer":
            command += ["--state-dir", self.folder / "state"]
        self._launch(name, command)

        def ready():
            if self.processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended: {self.log(name)[-2000:]}")
            return READY.search(self.log(name)) is not None
        await_true(name, ready)
        self.grpc[name], self.http[name] = READY.search(self.log(name)).groups()

    def _start_prometheus(self):
        port = free_port()
        (self.folder / "prometheus.yml").write_text(prometheus_config(self.http))
        self._launch("prometheus", ["prometheus", f"--config.file={self.folder / 'prometheus.yml'}",
                                    f"--storage.tsdb.path={self.folder / 'prometheus'}", "--log.level=warn",
                                    f"--web.listen-address=127.0.0.1:{port}"])
        self.prometheus = Prometheus(f"http://127.0.0.1:{port}")
        await_true("prometheus", self.prometheus.ready)
        await_true("targets", lambda: len(self.prometheus.now('up{job="freshet"} == 1')) == len(self.http))


def prometheus_config(targets):
    """targets: {process name: HTTP address}. Sets the same labels as the chart's PodMonitor."""
    lines = ["global: {scrape_interval: 1s, evaluation_interval: 1s}", f"rule_files: [{RULES}]", "scrape_configs:",
             "  - job_name: freshet", "    honor_labels: true", "    static_configs:"]
    for name, address in targets.items():
        role = name.rsplit("-", 1)[0]
        lines += [f"      - targets: ['{address}']",
                  f"        labels: {{instance: {name}, namespace: watching, release: freshet, component: {role}}}"]
    return "\n".join(lines) + "\n"
