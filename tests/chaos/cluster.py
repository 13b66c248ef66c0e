"""The processes of one run: redis-server and all roles, each with a proxy to Redis and a proxy in front of it."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import launcher  # noqa: E402
from launcher import free_port, role_of  # noqa: E402
from proxy import Proxy  # noqa: E402
from services import SERVICES  # noqa: E402

CONTROLLERS = ("controller-0", "controller-1")
ROLLOUTS = ("rollout-0", "rollout-1")
ENVIRONMENTS = ("env-0", "env-1")
WORKERS = ROLLOUTS + ("reward", "trainer")
PATIENCE_S = 60  # limit of a command


class Profile:
    """The programs of the roles, and the time scale of the cluster."""

    def __init__(self, binaries, rollout="freshet-sim-rollout", trainer="freshet-sim-trainer", time_scale=0.1):
        self.binaries, self.time_scale = binaries, time_scale
        self.programs = {"controller": "freshet-recorded-controller", "reward": "freshet-recorded-reward",
                         "env": "freshet-env", "rollout": rollout, "trainer": trainer}


def processes_with(variable):
    """Yields the ids of processes with this in their environment."""
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended, or is another user's
            if variable in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)


class Cluster(launcher.Processes):
    """Thread-safe."""

    def __init__(self, folder, profile, environments=(), services=None):
        """services: the package of the SERVICES; None: there are none."""
        history = os.path.join(folder, "history")
        os.makedirs(history)
        super().__init__(folder, profile.binaries, users=True, environment={
            "FRESHET_SIM_HISTORY": history, "FRESHET_SIM_STEP_SECONDS": "0.01",
            "FRESHET_SIM_ENGINE": "16 1.0 0.02 1.0 8 0.8"})
        self.profile = profile
        self.workers = WORKERS + tuple(environments)
        self.services = services
        callees = CONTROLLERS + (SERVICES if services else ())  # restart at their former address
        self.members = ("redis",) + callees + self.workers
        self.ports = {name: free_port() for name in callees}
        self.proxies = {name: Proxy(self.redis_port) for name in CONTROLLERS + WORKERS}  # in front of Redis
        self.links = {name: Proxy(port) for name, port in self.ports.items()}  # in front of the process
        self.former_links = []
        self.grpc = {name: self.address_of(name) for name in CONTROLLERS}

    def program(self, role):
        return self.binaries / self.profile.programs[role]

    def address_of(self, name):
        """Where the others find a controller or service."""
        return f"127.0.0.1:{self.links[name].port}"

    def command(self, name):
        if name in SERVICES:
            return self.services.command(name, self.binaries, self.ports[name])
        return super().command(name)

    def redis_address(self, name):
        return f"127.0.0.1:{self.proxies[name].port}"

    def flags(self, name):
        flags = ["--http-listen", "", "--listen", f"127.0.0.1:{self.links[name].target}",
                 "--advertise", f"127.0.0.1:{self.links[name].port}", "--time-scale", self.profile.time_scale]
        if name == "reward" and self.services:
            flags += ["--sandbox", f"http://{self.address_of('sandbox')}",
                      "--judge", f"http://{self.address_of('judge')}/v1"]
        return flags + ([] if role_of(name) == "controller" else ["--drain-timeout-ms", "1000"])

    def start(self, name, *command):
        if name in self.workers:  # an old process may still hold the address
            self.former_links.append(self.links.get(name))
            self.links[name] = Proxy(free_port())
        super().start(name, *command)

    def start_all(self):
        self.start_redis()
        for name in tuple(self.ports) + self.workers:
            self.start(name)
        for name, port in self.ports.items():
            self.await_ready(name, lambda: launcher.listens(port))

    def replace(self, name):
        """Stops a process and starts another under its name, as after a partition. Returns the stopped one."""
        self.signal(name, signal.SIGSTOP)
        zombie = self.processes[name]
        self.start(name)
        return zombie

    def ranks(self):
        """Process ids of ranks 1 .. of the trainer."""
        pids = []
        for task in pathlib.Path(f"/proc/{self.processes['trainer'].pid}/task").glob("*"):
            with contextlib.suppress(OSError):  # the thread has ended
                pids += map(int, (task / "children").read_text().split())
        return sorted(pids)  # a group's ranks are started in order

    def await_busy_rank(self, number, seconds):
        """Returns the process id of a rank as soon as it computes, or after `seconds`. None: it does not run."""
        deadline, computed = time.monotonic() + seconds, {}  # CPU time of the main thread, which waits between steps
        while True:
            pid = next(iter(self.ranks()[number - 1:]), None)
            with contextlib.suppress(OSError):
                now = pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]
                if computed.setdefault(pid, now) != now:
                    return pid
            if time.monotonic() > deadline:
                return pid
            time.sleep(0.001)

    def left_over(self, seconds=10):
        """Kills the processes of the run that live `seconds` after `stop`: ranks, which should end with their trainer.
        Returns their ids."""
        variable = f"FRESHET_SIM_HISTORY={self.environment['FRESHET_SIM_HISTORY']}".encode()
        deadline = time.monotonic() + seconds
        while (pids := list(processes_with(variable))) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def stop(self):
        super().stop()
        for proxy in [*self.proxies.values(), *self.links.values(), *filter(None, self.former_links)]:
            proxy.stop()

    def freshet(self, *arguments, timeout=PATIENCE_S):
        """Runs the command with the leading controller. The other one refuses with exit code 7 or 8."""
        for name in CONTROLLERS:
            command = [self.binaries / "freshet", *arguments, "--server", f"127.0.0.1:{self.ports[name]}"]
            result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
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
