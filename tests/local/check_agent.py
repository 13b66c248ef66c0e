#!/usr/bin/env python3
"""Trains with an agent that uses the openai package and a tool.

usage: check_agent.py PROGRAMS REPOSITORY local|sessions|cluster
       check_agent.py PROGRAMS REPOSITORY learn [STEPS]

local: a few steps by `freshet local`. sessions: the agent plays 200 episodes at the same time.
cluster: the same job in a cluster, one of whose rollouts is killed. learn: trains until the agent
uses its tool, then a control run without the tool, and prints the rewards; no test, takes minutes.

Exits with 77 (skipped) if the openai package is missing. The variable FRESHET_TEST_PYTHON selects
another interpreter.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from counting_model import tokenizer_of

SKIPPED = 77
TIMEOUT_S = 240
STEPS = 4
DIGITS = 4
CROWD = 200
EXAMPLE = "examples/python/openai_agent.py"
LEARNING_STEPS = 200
END, USER, ASSISTANT, TOOL = "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>"
CALL = '<tool_call>{"name": "lookup", "arguments": {}}</tool_call>'
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'user' %}" + USER + "{% elif m.role == 'tool' %}" + TOOL +
    "{% else %}" + ASSISTANT + "{% endif %}"
    "{{ m.content }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
    "{% if tools %}{# calls look like <tool_call> #}{% endif %}"
)


def write_tokenizer(folder):
    characters = "0123456789?"
    # The marker of a session's suffix is lower-case letters and digits.
    characters += "abcdefghijklmnopqrstuvwxyz"
    special = [END, USER, ASSISTANT, TOOL]
    vocabulary = {character: i for i, character in enumerate(characters)}
    added = {token: len(vocabulary) + i for i, token in enumerate([*special, CALL])}
    tokenizer = tokenizer_of(vocabulary, added, special)
    settings = {"eos_token": END, "chat_template": TEMPLATE,
                "tokenizer_class": "PreTrainedTokenizerFast"}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_job(folder, address, steps=STEPS, prompts=8, group=8, concurrent=64, options="{}",
              staleness=2, more=""):
    rows = ", ".join(f'{{q: "?", answer: "{digit}"}}' for digit in range(DIGITS))
    (folder / "job.yaml").write_text(f"""
name: agent
seed: 1
model:
  init: random
  dtype: fp32
  config: {{model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
            intermediate_size: 128, max_position_embeddings: 64}}
tokenizer: {{type: file, path: "{folder}/tokenizer"}}
dataset: {{type: template, prompt: "{{q}}", answer: answer, rows: [{rows}]}}
environment: {{type: openai_agent, address: "{address}",
               max_concurrent: {concurrent}, options: {options}}}
group_size: {group}
prompts_per_step: {prompts}
rollout: {{max_new_tokens: 24, temperature: 1.0}}
staleness: {{max: {staleness}}}
reward: {{components: {{agent: {{type: environment, weight: 1.0}}}}}}
loss: {{preset: grpo, entropy_coef: 0.02}}
trainer: {{steps: {steps}}}
optimizer: {{learning_rate: 3.0e-3}}
{more}
""")


@contextlib.contextmanager
def agent(*command):
    """Runs an agent; gives its address."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.kill()


def rewards_of(folder):
    return [row["reward_mean"]
            for row in map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
            if "reward_mean" in row]


def train_locally(programs, folder, steps, timeout=TIMEOUT_S):
    """Runs the folder's job and returns the mean rewards of its steps."""
    result = subprocess.run(
        [programs / "freshet", "local", "job.yaml", "--run-dir", "run"], cwd=folder,
        capture_output=True, text=True, timeout=timeout, check=False)
    if result.returncode != 0:
        sys.exit(f"{result.stderr[-3000:]}\nfreshet local exited with {result.returncode}")
    if "tool_calls=\"the chat template shows <tool_call>\"" not in result.stderr:
        sys.exit(f"{result.stderr[-3000:]}\nno calls of tools are parsed")
    rewards = rewards_of(folder)
    if len(rewards) != steps:
        sys.exit(f"{len(rewards)} of {steps} steps have a reward")
    subprocess.run([programs / "freshet", "ledger", "verify", "run"], cwd=folder, check=True)
    return rewards


def check_local(programs, repository, folder):
    with agent(repository / EXAMPLE, "127.0.0.1:0") as address:
        write_job(folder, address, more="eval: {every_steps: 2, rows: 4}")
        print(f"mean rewards of the steps: {train_locally(programs, folder, STEPS)}")
    completions = (folder / "run" / "samples.jsonl").read_text()
    if "<tool_call>" not in completions:
        sys.exit("no sample calls the tool")


def check_sessions(programs, repository, folder):
    # Its first 200 episodes wait for each other.
    with agent(pathlib.Path(__file__).resolve(), str(repository), "crowd") as address:
        write_job(folder, address, steps=1, prompts=32, concurrent=CROWD)
        print(f"mean reward of the step: {train_locally(programs, folder, 1)}")


def play_in_a_crowd(repository):
    """An agent whose first CROWD episodes begin when all of them are there."""
    sys.path.insert(0, str(repository / "examples" / "python"))
    import openai_agent

    barrier = threading.Barrier(CROWD)
    places, one = iter(range(CROWD)), threading.Lock()
    play = openai_agent.play

    def wait_and_play(task):
        with one:
            first = next(places, None) is not None
        if first:
            barrier.wait(TIMEOUT_S)
        return play(task)

    openai_agent.play = wait_and_play
    sys.argv = ["openai_agent.py", "127.0.0.1:0"]
    openai_agent.main()


def check_cluster(programs, repository, folder):
    sys.path.insert(0, str(repository / "tests" / "testing"))
    from launcher import SupervisedCluster, await_true

    steps = 12
    with agent(repository / EXAMPLE, "127.0.0.1:0") as address:
        write_job(folder, address, steps=steps, more="eval: {every_steps: 4, rows: 4}")
        cluster = SupervisedCluster(programs / "freshet", folder, "--rollouts", "2", "--data-root",
                                    str(folder))
        try:
            def ended_or(step):
                job = json.loads(cluster.freshet("get", "agent", "-o", "json"))
                return job["state"] in ("SUCCEEDED", "FAILED") or job.get("step", 0) >= step

            def describe():
                return f"\n{cluster.freshet('describe', 'agent')}"

            cluster.freshet("submit", str(folder / "job.yaml"), "--id", "agent")
            await_true("two steps", lambda: ended_or(2), TIMEOUT_S, describe)
            cluster.signal(signal.SIGKILL, name="rollout-1")
            await_true("the end", lambda: ended_or(float("inf")), TIMEOUT_S, describe)
            text = describe()
            if "SUCCEEDED" not in text or f"{steps}/{steps}" not in text:
                sys.exit(text)
            print(cluster.freshet("ledger", "verify", "agent"))
            rows = [json.loads(row) for row in cluster.freshet("metrics", "agent", "--json").splitlines()]
            if not any("eval" in key for row in rows for key in row):
                sys.exit(f"no evaluation: {rows}")
        finally:
            cluster.down()


def learn(programs, repository, folder, steps):
    for name, options in (("with the tool", "{}"), ("without", '{tool: "no"}')):
        run = folder / name.replace(" ", "_")
        run.mkdir()
        write_tokenizer(run / "tokenizer")
        began = time.monotonic()
        with agent(repository / EXAMPLE, "127.0.0.1:0") as address:
            write_job(run, address, steps=steps, group=16, options=options, staleness=0)
            rewards = rewards_in_tens(train_locally(programs, run, steps, timeout=3600))
        print(f"{name}: mean rewards of ten steps each {rewards}, "
              f"{time.monotonic() - began:.0f} s", flush=True)


def rewards_in_tens(rewards):
    tens = [rewards[i:i + 10] for i in range(0, len(rewards), 10)]
    return [round(sum(ten) / len(ten), 3) for ten in tens]


def main():
    programs, repository = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        if sys.argv[3] == "learn":
            return learn(programs, repository, folder, int(sys.argv[4]) if sys.argv[4:] else LEARNING_STEPS)
        write_tokenizer(folder / "tokenizer")
        checks = {"local": check_local, "sessions": check_sessions, "cluster": check_cluster}
        return checks[sys.argv[3]](programs, repository, folder)


if __name__ == "__main__":
    interpreter = os.environ.pop("FRESHET_TEST_PYTHON", "")
    if interpreter:
        os.execv(interpreter, [interpreter, *sys.argv])
    if not importlib.util.find_spec("openai"):
        print(f"skipped: {sys.executable} lacks openai; pip install it")
        sys.exit(SKIPPED)
    if sys.argv[2] == "crowd":
        play_in_a_crowd(pathlib.Path(sys.argv[1]))
    else:
        main()
