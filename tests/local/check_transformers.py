#!/usr/bin/env python3
"""Checks that a checkpoint written by Freshet is a Hugging Face model directory.

Trains a tiny job, loads its last checkpoint in transformers, and compares log-probs with
`freshet score` and token ids with `freshet tokenize`. More model directories can be named; they are
compared in the same way.

usage: check_transformers.py FRESHET [MODEL_DIRECTORY ...]

Exits with 77 (skipped) where transformers or torch is not installed, with 1 on a difference.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

SKIPPED = 77
MAX_DIFFERENCE = 1e-4
JOB = """
name: check
seed: 1
model:
  init: random
  config: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4,
           num_key_value_heads: 2, intermediate_size: 64, max_position_embeddings: 32}
tokenizer: {type: char, alphabet: "0123456789="}
dataset: {type: copy, symbols: "0123456789", length: 3, train_rows: 500}
group_size: 4
prompts_per_step: 8
rollout: {max_new_tokens: 8}
reward: {components: {exact: {type: exact_match}}}
warmup: {sft: {steps: 20, batch_size: 32, learning_rate: 5.0e-3}}
trainer: {steps: 3}
optimizer: {learning_rate: 1.0e-3}
"""


def run(command, text=None):
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def sequences(vocab_size, longest):
    rng = random.Random(1)
    lengths = [2, 3, min(17, longest), longest]
    return [[rng.randrange(vocab_size) for _ in range(length)] for length in lengths]


def compare_logprobs(freshet, directory, scratch, torch, transformers):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager"
    )
    model = model.float().eval()
    longest = min(model.config.max_position_embeddings, 128)
    lists = sequences(model.config.vocab_size, longest)
    ids_file = scratch / "ids"
    ids_file.write_text("".join(json.dumps(ids) + "\n" for ids in lists))
    worst = 0.0
    for engine in ("prefill", "decode", "trainer"):
        rows = run([freshet, "score", str(directory), "--ids", str(ids_file), "--engine", engine])
        for ids, row in zip(lists, rows, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, :-1]
            expected = torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]
            found = torch.tensor(row["logprobs"])
            worst = max(worst, (found - expected).abs().max().item())
    return worst


def compare_tokenizer(freshet, directory, transformers):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    texts = ["12=", "007", "", "1</s>2", "9876543210="]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    rows = run([freshet, "tokenize", str(directory)], lines)
    for text, row in zip(texts, rows, strict=True):
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        if row["ids"] != expected:
            sys.exit(f"{directory}: {text!r} is {row['ids']}, transformers says {expected}")
        decoded = tokenizer.decode(expected, clean_up_tokenization_spaces=False)
        if row["decoded"] != decoded:
            sys.exit(f"{directory}: {text!r} decodes to {row['decoded']!r}, not {decoded!r}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"SKIP: {error}")
        return SKIPPED
    freshet = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        (scratch / "job.yaml").write_text(JOB)
        run([freshet, "local", str(scratch / "job.yaml"), "--run-dir", str(scratch / "run")])
        directories = [scratch / "run" / "checkpoints" / "step-3", *map(pathlib.Path, sys.argv[2:])]
        for directory in directories:
            worst = compare_logprobs(freshet, directory, scratch, torch, transformers)
            print(f"{directory}: log-probs differ by at most {worst:.2g}")
            if worst > MAX_DIFFERENCE:
                sys.exit(f"{directory}: more than {MAX_DIFFERENCE}")
        compare_tokenizer(freshet, directories[0], transformers)
        print(f"{directories[0]}: token ids agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
