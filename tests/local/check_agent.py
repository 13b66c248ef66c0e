#!/usr/bin/env python3
"""Trains a few steps with an agent that uses the openai package and a tool, by `freshet local`.

usage: check_agent.py FOLDER_OF_PROGRAMS REPOSITORY

Exits with 77 (skipped) if the openai package is missing. The variable FRESHET_TEST_PYTHON selects
another interpreter.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
TIMEOUT_S = 240
STEPS = 4
END, USER, ASSISTANT, TOOL = "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>"
CALL = '<tool_call>{"name": "lookup", "arguments": {}}</tool_call>'
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'user' %}" + USER + "{% elif m.role == 'tool' %}" + TOOL +
    "{% else %}" + ASSISTANT + "{% endif %}"
    "{{ m.content }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
    "{# calls: <tool_call> #}"
)


def write_tokenizer(folder):
    characters = "0123456789?"
    # The marker of a session's suffix is lower-case letters and digits.
    characters += "abcdefghijklmnopqrstuvwxyz"
    special = [END, USER, ASSISTANT, TOOL]
    vocabulary = {character: i for i, character in enumerate(characters)}
    added = {token: len(vocabulary) + i for i, token in enumerate([*special, CALL])}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": number, "content": token, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": token in special}
            for token, number in added.items()],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []},
    }
    settings = {"eos_token": END, "chat_template": TEMPLATE,
                "tokenizer_class": "PreTrainedTokenizerFast"}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_job(folder, address):
    rows = ", ".join(f'{{q: "?", answer: "{digit}"}}' for digit in range(4))
    (folder / "job.yaml").write_text(f"""
name: agent
seed: 1
model:
  init: random
  dtype: fp32
  config: {{model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
            intermediate_size: 128, max_position_embeddings: 64}}
tokenizer: {{type: file, path: tokenizer}}
dataset: {{type: template, prompt: "{{q}}", answer: answer, rows: [{rows}]}}
environment: {{type: openai_agent, address: "{address}", timeout_ms: 30000, max_concurrent: 64}}
group_size: 8
prompts_per_step: 8
rollout: {{max_new_tokens: 32, temperature: 1.0}}
staleness: {{max: 2, policy: wait}}
reward: {{components: {{agent: {{type: environment, weight: 1.0}}}}}}
loss: {{preset: grpo}}
trainer: {{steps: {STEPS}}}
optimizer: {{learning_rate: 3.0e-3}}
""")


def main():
    programs, repository = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_tokenizer(folder / "tokenizer")
        with subprocess.Popen(
                [sys.executable, repository / "examples/python/openai_agent.py", "127.0.0.1:0"],
                stdout=subprocess.PIPE, text=True) as agent:
            try:
                write_job(folder, agent.stdout.readline().split()[-1])
                result = subprocess.run(
                    [programs / "freshet", "local", "job.yaml", "--run-dir", "run"], cwd=folder,
                    capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            finally:
                agent.kill()
        print(result.stderr[-3000:])
        if result.returncode != 0:
            sys.exit(f"freshet local exited with {result.returncode}")
        rewards = [json.loads(line)["reward_mean"]
                   for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()
                   if "reward_mean" in line]
    print(f"mean rewards of the steps: {rewards}")
    if len(rewards) != STEPS:
        sys.exit(f"{len(rewards)} of {STEPS} steps have a reward")


if __name__ == "__main__":
    interpreter = os.environ.pop("FRESHET_TEST_PYTHON", "")
    if interpreter:
        os.execv(interpreter, [interpreter, *sys.argv])
    if not importlib.util.find_spec("openai"):
        print(f"skipped: {sys.executable} lacks openai; pip install it")
        sys.exit(SKIPPED)
    main()
