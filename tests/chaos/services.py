"""The services that rewards come from: an environment server, a sandbox and a judge.

Every sample of REWARD_JOB deserves REWARD, whatever the policy writes. Any other value is a failure that became one.
"""
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = os.environ.get("FRESHET_TEST_PYTHON") or sys.executable
SERVICES = ("games", "sandbox", "judge")

REWARD = 111.0
# All texts in the first 8 characters of the alphabet, the vocabulary of the simulated engine, are Python programs.
REWARD_JOB = r"""
tokenizer: {type: char, alphabet: "1234567\n"}
dataset: {type: template, prompt: "{q}", rows: [{q: "1", tests: '{"inputs": [""], "outputs": [""]}'}]}
environment: {type: grpc, address: "GAMES", max_turns: 3, max_turn_tokens: 6, step_timeout_ms: 300}
reward:
  timeout_ms: 4000
  max_attempts: 20
  components:
    game: {type: environment}
    program: {type: code, weight: 10.0, test_timeout_ms: 3000}
    verdict: {type: judge, timeout_ms: 300, model: judge, text: "{response}", weight: 100.0}
"""


class Package:
    """The Python client with its stubs, in `folder`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        client = ROOT / "clients" / "python"
        shutil.copytree(client / "freshet", self.folder / "freshet",
                        ignore=lambda _, names: [name for name in names if name.startswith("__pycache__")])
        subprocess.run([PYTHON, client / "generate.py", ROOT / "proto", self.folder], check=True)
        (self.folder / "games.yaml").write_text(f'game: {{python: "{HERE / "game.py"}:Game"}}\n')

    def command(self, name, binaries, port):
        """The command line of a service that listens on a port."""
        if name == "sandbox":
            return [binaries / "freshet-sandbox", "--listen", f"127.0.0.1:{port}", "--workers", "2"]
        if name == "judge":
            return [PYTHON, HERE / "judge.py", port]
        return ["env", f"PYTHONPATH={self.folder}", PYTHON, "-m", "freshet.environment_server",
                self.folder / "games.yaml", "--listen", f"127.0.0.1:{port}"]


def missing():
    """What the interpreter of the services lacks, or ""."""
    code = "import importlib.util as i, sys; print(*(m for m in sys.argv[1:] if not i.find_spec(m)))"
    command = [PYTHON, "-c", code, "grpc", "grpc_tools", "yaml"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
