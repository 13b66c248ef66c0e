#!/usr/bin/env python3
"""Checks that a checkpoint written by Freshet is a Hugging Face model directory.

Trains a tiny job from scratch, with fp32 and with bf16 checkpoints, and, if the reference data is
beside the source tree, examples/stories.yaml from a bf16 copy of stories260K (tied head, BPE
tokenizer). Loads the last checkpoint of each in transformers, which must find the dtype of the
checkpoint, and compares fp32 log-probs with `freshet score` and token ids with `freshet tokenize`.
Compares the fp32 log-probs of further model directories.

usage: check_transformers.py FRESHET [MODEL_DIRECTORY ...]

Exits with 77 (skipped) if transformers or torch is not installed, with 1 on a difference.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
MAX_DIFFERENCE = 1e-4
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = ROOT.parent / "shared" / "data"
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
CHAR_TEXTS = ["12=", "007", "", "1</s>2", "9876543210="]
BPE_TEXTS = [
    "Once upon a time, there was a little girl named Lily.",
    "",
    " ",
    " leading, two  inside, trailing ",
    "a line\nand\ta tab",
    "naïve café, 日本語, 🙂",
    "one</s>two<s>three",
    "<0x41> \u2581 \u00a0 \u0301e",
    "12 + 34 = 46",
    "supercalifragilisticexpialidocious " * 3,
]


def run(command, text=None):
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def sequences(vocab_size, longest):
    rng = random.Random(1)
    lengths = [2, 3, min(17, longest), longest]
    return [[rng.randrange(vocab_size) for _ in range(length)] for length in lengths]


def train_tiny(freshet, scratch, dtype):
    (scratch / "job.yaml").write_text(JOB)
    run([freshet, "local", str(scratch / "job.yaml"), "--run-dir", str(scratch / dtype),
         "--set", f"checkpoint.dtype={dtype}"])
    return scratch / dtype / "checkpoints" / "step-3"


def copy_in_bf16(source, target, torch):
    """Writes a copy of a model directory with weights stored and declared as bf16."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    config["torch_dtype"] = "bfloat16"
    (target / "config.json").write_text(json.dumps(config))
    tensors = load_file(source / "model.safetensors")
    rounded = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    save_file(rounded, target / "model.safetensors", metadata={"format": "pt"})


def train_stories(freshet, scratch, torch):
    copy_in_bf16(DATA / "stories260K" / "hf", scratch / "stories260K", torch)
    settings = [f"model.path={scratch / 'stories260K'}", "trainer.steps=2", "eval.every_steps=2",
                "eval.rows=4", "prompts_per_step=8", "rollout.max_new_tokens=80",
                "checkpoint.every_steps=2"]
    command = [freshet, "local", str(ROOT / "examples" / "stories.yaml")]
    command += ["--run-dir", str(scratch / "stories")]
    for setting in settings:
        command += ["--set", setting]
    run(command)
    return scratch / "stories" / "checkpoints" / "step-2"


def check_dtype(directory, dtype, transformers):
    """Checkpoints have the dtype of the job's `checkpoint`, whatever that of the model."""
    config = json.loads((directory / "config.json").read_text())
    declared = config.get("dtype", config.get("torch_dtype"))
    if declared != dtype:
        sys.exit(f"{directory}: config.json declares dtype {declared!r}, not {dtype!r}")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype="auto").dtype
    if str(loaded) != f"torch.{dtype}":
        sys.exit(f"{directory}: transformers loads it as {loaded}")


def compare_logprobs(freshet, directory, scratch, torch, transformers):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32
    ).eval()
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


def compare_tokenizer(freshet, directory, texts, transformers):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    rows = run([freshet, "tokenize", str(directory)], lines)
    for text, row in zip(texts, rows, strict=True):
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        if row["ids"] != expected:
            sys.exit(f"{directory}: {text!r} is {row['ids']}, transformers says {expected}")
        decoded = tokenizer.decode(expected, clean_up_tokenization_spaces=False)
        if row["decoded"] != decoded:
            sys.exit(f"{directory}: {text!r} decodes to {row['decoded']!r}, not {decoded!r}")
    print(f"{directory}: ids of {len(texts)} texts agree")


def check(freshet, directory, scratch, torch, transformers):
    worst = compare_logprobs(freshet, directory, scratch, torch, transformers)
    print(f"{directory}: log-probs differ by at most {worst:.2g}")
    if worst > MAX_DIFFERENCE:
        sys.exit(f"{directory}: more than {MAX_DIFFERENCE}")


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
        for short, dtype in (("fp32", "float32"), ("bf16", "bfloat16")):
            tiny = train_tiny(freshet, scratch, short)
            check_dtype(tiny, dtype, transformers)
            check(freshet, tiny, scratch, torch, transformers)
            compare_tokenizer(freshet, tiny, CHAR_TEXTS, transformers)
        if (DATA / "stories260K" / "hf").is_dir():
            stories = train_stories(freshet, scratch, torch)
            check_dtype(stories, "float32", transformers)
            check(freshet, stories, scratch, torch, transformers)
            compare_tokenizer(freshet, stories, BPE_TEXTS, transformers)
        else:
            print(f"stories260K: not compared, no reference data at {DATA}")
        for directory in sys.argv[2:]:
            check(freshet, pathlib.Path(directory), scratch, torch, transformers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
