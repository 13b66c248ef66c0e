"""A cluster of real processes with mutual TLS and an authorization policy, scraped by Prometheus."""
import hashlib
import json
import pathlib
import re
import shutil
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "helm" / "dashboards"), str(ROOT / "tests" / "testing"), str(ROOT / "tests" / "local")]
import counting_model  # noqa: E402
import launcher  # noqa: E402
from launcher import await_true, call, free_port, role_of  # noqa: E402
from prometheus_client import Prometheus  # noqa: E402

RULES = ROOT / "helm" / "freshet" / "rules" / "freshet.yaml"
MEMBER = "spiffe://freshet/member"
POLICY = {"name": "watching", "allow_rules": [{"name": "members", "source": {"principals": [MEMBER]}}]}
USERS = {"users": [{"name": "watcher", "role": "viewer", "token_sha256": hashlib.sha256(b"watcher's token").hexdigest()}]}
NEEDED = ("redis-server", "openssl", "prometheus")


def missing():
    """Returns the programs of NEEDED that are not installed."""
    return [name for name in NEEDED if shutil.which(name) is None]


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
        call("openssl", *arguments, folder=self.folder)


class Cluster(launcher.Processes):
    """A context manager that starts all processes, and stops them at the end."""

    def __init__(self, binaries, folder, rollouts=2):
        super().__init__(folder, binaries)
        self.rollouts = rollouts
        self.certificates = Certificates(self.folder)
        self.client_flags = self.certificates.flags("--")
        (self.folder / "policy.json").write_text(json.dumps(POLICY))
        (self.folder / "users.json").write_text(json.dumps(USERS))
        self.prometheus = None

    def __enter__(self):
        try:
            self.start_redis("--maxmemory", "512mb", "--maxmemory-policy", "noeviction")
            self.start_roles("controller-0")
            workers = [*(f"rollout-{i}" for i in range(self.rollouts)), "reward-0", "env-0", "trainer-0"]
            self.start_roles(*workers)
            self._start_sandbox()
            self._start_model_server()
            await_true("workers", lambda: self._workers() == len(workers))
            self._start_prometheus()
        except BaseException:
            self.stop()
            raise
        return self

    def flags(self, name):
        flags = ["--authz-policy", self.folder / "policy.json", *self.certificates.flags("--tls-")]
        if role_of(name) == "controller":
            flags += ["--users", self.folder / "users.json", "--pool-bounds", f"default={self.rollouts}..{self.rollouts}"]
        if role_of(name) == "reward":
            flags += ["--judge", "http://127.0.0.1:1"]  # nobody answers there
        return flags

    def submit(self, job, text):
        path = self.folder / f"{job}.yaml"
        path.write_text(text)
        self.freshet("submit", path, "--id", job)

    def job(self, job):
        return json.loads(self.freshet("get", job, "-o", "json"))

    def _workers(self):
        """Returns the number of ready workers of all roles."""
        with urllib.request.urlopen(f"http://{self.http['controller-0']}/metrics", timeout=10) as page:
            text = page.read().decode()
        return sum(float(value) for value in re.findall(r'^freshet_workers\{[^}]*state="ready"[^}]*\} (\S+)', text, re.M))

    def _start_sandbox(self):
        self.start("sandbox-0", self.program("sandbox"), "--listen=127.0.0.1:0", "--workers=1")
        found = re.compile(r"^ready sandbox http=(\S+)", re.MULTILINE)
        self.await_ready("sandbox-0", lambda: found.search(self.log("sandbox-0")))
        self.http["sandbox-0"] = found.search(self.log("sandbox-0"))[1]

    def _start_model_server(self):
        counting_model.write_model(self.folder / "rm", {ord("1"): 1.0})
        self.start("model-0", self.binaries / "freshet", "serve", self.folder / "rm", "--listen", "127.0.0.1:0",
                   "--http-listen", "127.0.0.1:0")
        found = re.compile(r"^serving on \S+ http=(\S+)", re.MULTILINE)
        self.await_ready("model-0", lambda: found.search(self.log("model-0")))
        self.http["model-0"] = found.search(self.log("model-0"))[1]

    def _start_prometheus(self):
        port = free_port()
        (self.folder / "prometheus.yml").write_text(prometheus_config(self.http))
        self.start("prometheus", "prometheus", f"--config.file={self.folder / 'prometheus.yml'}",
                   f"--storage.tsdb.path={self.folder / 'prometheus'}", "--log.level=warn",
                   f"--web.listen-address=127.0.0.1:{port}")
        self.prometheus = Prometheus(f"http://127.0.0.1:{port}")
        self.await_ready("prometheus", self.prometheus.ready)
        await_true("targets", lambda: len(self.prometheus.now('up{job="freshet"} == 1')) == len(self.http))


def prometheus_config(targets):
    """targets: {process name: HTTP address}. Sets the same labels as the chart's PodMonitor."""
    lines = ["global: {scrape_interval: 1s, evaluation_interval: 1s}", f"rule_files: [{RULES}]", "scrape_configs:",
             "  - job_name: freshet", "    honor_labels: true", "    static_configs:"]
    for name, address in targets.items():
        role = name.rsplit("-", 1)[0]
        pool = ", pool: rm" if role == "model" else ""
        lines += [f"      - targets: ['{address}']",
                  f"        labels: {{instance: {name}, namespace: watching, release: freshet, role: {role}{pool}}}"]
    return "\n".join(lines) + "\n"
