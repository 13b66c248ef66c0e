"""The processes of one run: redis-server and all roles, each with a proxy to Redis and a proxy in front of it."""
import collections
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

from proxy import Proxy

CONTROLLERS = ("controller-0", "controller-1")
ROLLOUTS = ("rollout-0", "rollout-1")
ENVIRONMENTS = ("env-0", "env-1")
WORKERS = ROLLOUTS + ("reward", "trainer")
ROLES_OF_REDIS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../helm/freshet/redis-roles.acl")
PATIENCE_S = 60  # limit for a process to listen, and for a command
given, giving = collections.deque(maxlen=4096), threading.Lock()


def free_port():
    """A free port below the ephemeral range, so that no outgoing connection takes it before it is used."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as sock, giving:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in given:
                given.append(port)
                return port


class Profile:
    """The programs of the roles, and the time scale of the cluster."""

    def __init__(self, binaries, rollout="freshet-sim-rollout", trainer="freshet-sim-trainer", time_scale=0.1):
        self.binaries, self.time_scale = binaries, time_scale
        self.programs = {"controller": "freshet-recorded-controller", "reward": "freshet-recorded-reward",
                         "env": "freshet-env", "rollout": rollout, "trainer": trainer}

    def program(self, name):
        return os.path.join(self.binaries, self.programs[name.split("-")[0]])


class Cluster:
    """Thread-safe."""

    def __init__(self, folder, profile, environments=()):
        self.folder, self.profile = folder, profile
        self.workers = WORKERS + tuple(environments)
        self.members = ("redis",) + CONTROLLERS + self.workers
        self.history = os.path.join(folder, "history")
        os.makedirs(self.history)
        os.makedirs(os.path.join(folder, "redis"))
        self._write_users()
        self.processes, self.zombies = {}, []
        self.redis_port = free_port()
        self.ports = {name: free_port() for name in CONTROLLERS}
        self.proxies = {name: Proxy(self.redis_port) for name in CONTROLLERS + WORKERS}  # in front of Redis
        self.links = {name: Proxy(port) for name, port in self.ports.items()}  # in front of the process
        self.former_links = []
        self.lock = threading.Lock()

    def _write_users(self):
        """Writes the Redis users of the roles, as in a real cluster. A role's password is its name."""
        lines = ["user default on nopass ~* &* +@all\n"]
        with open(ROLES_OF_REDIS, encoding="utf-8") as roles:
            for role, rules in (line.split(" ", 1) for line in roles if not line.startswith("#")):
                lines.append(f"user {role} on >{role} {rules}")
                with open(os.path.join(self.folder, role + ".password"), "w", encoding="utf-8") as password:
                    password.write(role)
        with open(os.path.join(self.folder, "users.acl"), "w", encoding="utf-8") as users:
            users.writelines(lines)

    def command(self, name):
        if name == "redis":
            return ["redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--dir",
                    os.path.join(self.folder, "redis"), "--appendonly", "yes", "--appendfsync", "always", "--save", "",
                    "--logfile", os.path.join(self.folder, "redis.log"), "--aclfile", os.path.join(self.folder, "users.acl")]
        command = [self.profile.program(name), "--name", name, "--http-listen", "",
                   "--listen", f"127.0.0.1:{self.links[name].target}",
                   "--advertise", f"127.0.0.1:{self.links[name].port}", "--time-scale", str(self.profile.time_scale)]
        if name in self.proxies:
            role = name.split("-")[0]
            command += ["--redis", f"127.0.0.1:{self.proxies[name].port}", "--redis-user", role,
                        "--redis-password-file", os.path.join(self.folder, role + ".password")]
        if name in CONTROLLERS:
            return command
        controllers = ",".join(f"127.0.0.1:{self.links[controller].port}" for controller in CONTROLLERS)
        command += ["--controller", controllers, "--drain-timeout-ms", "1000"]
        return command + (["--state-dir", os.path.join(self.folder, "state")] if name == "trainer" else [])

    def start(self, name):
        if name in self.workers:  # an old process may still hold the address
            self.former_links.append(self.links.get(name))
            self.links[name] = Proxy(free_port())
        environment = dict(os.environ, FRESHET_SIM_HISTORY=self.history, FRESHET_SIM_STEP_SECONDS="0.01",
                           FRESHET_SIM_ENGINE="16 1.0 0.02 1.0 8 0.8")
        with open(os.path.join(self.folder, f"{name}.log"), "ab") as log, self.lock:
            self.processes[name] = subprocess.Popen(self.command(name), stdout=log, stderr=log, env=environment)

    def start_all(self):
        self.start("redis")
        self.await_port(self.redis_port)
        for name in CONTROLLERS + self.workers:
            self.start(name)
        for port in self.ports.values():
            self.await_port(port)

    @staticmethod
    def await_port(port):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"nothing listens on port {port}")

    def signal(self, name, number):
        """Returns False if the process has ended."""
        process = self.processes.get(name)
        if process is None or process.poll() is not None:
            return False
        process.send_signal(number)
        return True

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        process = self.processes.get(name)
        if process is not None:
            process.wait()

    def replace(self, name):
        """Stops a process and starts another under its name, as after a partition. Returns the stopped one."""
        self.signal(name, signal.SIGSTOP)
        zombie = self.processes[name]
        self.zombies.append(zombie)
        self.start(name)
        return zombie

    def stop_all(self):
        for process in self.zombies + list(self.processes.values()):
            if process.poll() is None:
                process.kill()
                process.wait()
        for proxy in [*self.proxies.values(), *self.links.values(), *filter(None, self.former_links)]:
            proxy.stop()

    def freshet(self, *arguments, timeout=PATIENCE_S):
        """Runs the command with the leading controller. The other one refuses with exit code 7 or 8."""
        for port in self.ports.values():
            result = subprocess.run([os.path.join(self.profile.binaries, "freshet"), *arguments, "--server", f"127.0.0.1:{port}"],
                                    capture_output=True, text=True, timeout=timeout)
            if result.returncode not in (7, 8):
                return result
        return result

    def submit(self, job, text):
        path = os.path.join(self.folder, "job.yaml")
        with open(path, "w") as file:
            file.write(text)
        deadline = time.monotonic() + PATIENCE_S
        while (result := self.freshet("submit", path, "--id", job)).returncode != 0:
            if time.monotonic() > deadline or result.returncode not in (7, 8):
                raise RuntimeError(f"submit: exit {result.returncode}: {result.stderr.strip()}")
            time.sleep(0.05)

    def await_end(self, job, seconds):
        """Returns the final state of the job, or what it is stuck on."""
        deadline = time.monotonic() + seconds
        state, waits = "UNKNOWN", ""
        while time.monotonic() < deadline:
            result = self.freshet("get", job, "-o", "json")
            if result.returncode == 0:
                answer = json.loads(result.stdout)
                state = answer["state"].removeprefix("JOB_STATE_")
                waits = answer.get("waits_for", "")
                if state in ("SUCCEEDED", "FAILED", "CANCELLED"):
                    return state
            time.sleep(0.05)
        return f"stuck in {state}: {waits}"

    def checkpoint_weights(self, job, step):
        """Path of the weights in the checkpoint of `step`."""
        return os.path.join(self.folder, "state", "jobs", job, "checkpoints", f"step-{step}", "model.safetensors")
