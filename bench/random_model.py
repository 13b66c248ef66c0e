#!/usr/bin/env python3
"""Writes a Hugging Face directory of a Qwen3 model with random weights in bf16.

    bench/random_model.py DIR --tokenizer DIR [--shape 0.6b|small]

0.6b is the shape of Qwen3-0.6B, also with a tokenizer that has fewer tokens. Needs no packages.
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import struct

SHAPES = {
    "0.6b": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
             "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936},
    "small": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 32, "intermediate_size": 384, "vocab_size": 4096},
}
ONE = b"\x80\x3f"
# The upper byte of a bf16 number whose magnitude is from 2^-7 to 2^-5, by a random byte for its sign.
SIGNS = bytes(0x3C if byte % 2 else 0xBC for byte in range(256))
PART = 1 << 24


def config(shape):
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", **shape,
        "attention_bias": False, "hidden_act": "silu", "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000, "tie_word_embeddings": True, "use_sliding_window": False, "initializer_range": 0.02,
    }


def tensors(shape):
    """Name -> dimensions; vectors are the weights of norms."""
    hidden, inner, head = shape["hidden_size"], shape["intermediate_size"], shape["head_dim"]
    queries, keys = shape["num_attention_heads"] * head, shape["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (shape["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(shape["num_hidden_layers"]):
        for name, dimensions in {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
            "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
            "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
        }.items():
            yield f"model.layers.{layer}.{name}.weight", dimensions


def write_numbers(file, dimensions, dice):
    count = math.prod(dimensions)
    if len(dimensions) == 1:
        file.write(ONE * count)
        return
    for first in range(0, count, PART):
        size = min(PART, count - first)
        part = bytearray(2 * size)
        part[0::2] = dice.randbytes(size)
        part[1::2] = dice.randbytes(size).translate(SIGNS)
        file.write(part)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, default="0.6b")
    arguments = parser.parse_args()
    shape, directory = SHAPES[arguments.shape], arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (arguments.tokenizer / name).exists():
            shutil.copy(arguments.tokenizer / name, directory / name)
    (directory / "config.json").write_text(json.dumps(config(shape), indent=2) + "\n")
    header, end = {}, 0
    for name, dimensions in tensors(shape):
        begin, end = end, end + 2 * math.prod(dimensions)
        header[name] = {"dtype": "BF16", "shape": dimensions, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    dice = random.Random(1)
    with (directory / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, dimensions in tensors(shape):
            write_numbers(file, dimensions, dice)
    print(f"{end // 2:,} parameters in {directory}")


if __name__ == "__main__":
    main()
