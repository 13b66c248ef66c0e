"""Writes a Hugging Face directory of a Llama model with bf16 weights as a GGUF file without a tokenizer."""
import json
import pathlib
import struct

UINT32, FLOAT32, STRING = 4, 6, 8  # types of metadata
F32, BF16 = 0, 30  # types of tensors
ALIGNMENT = 32
NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
LAYER_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
               "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def interleave(rows, heads):
    """Rows of a query or key projection in the order of llama.cpp, which rotates neighbours, not halves."""
    size = len(rows) // heads
    return [rows[head * size + half * (size // 2) + i] for head in range(heads) for i in range(size // 2)
            for half in range(2)]


def widen(data):
    """bf16 as fp32."""
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def metadata(config):
    words = {"embedding_length": config["hidden_size"], "block_count": config["num_hidden_layers"],
             "feed_forward_length": config["intermediate_size"], "attention.head_count": config["num_attention_heads"],
             "attention.head_count_kv": config["num_key_value_heads"], "rope.dimension_count": config["head_dim"],
             "context_length": config["max_position_embeddings"], "vocab_size": config["vocab_size"]}
    numbers = {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": config["rope_theta"]}
    entries = [text(key) + struct.pack("<I", STRING) + text(value)
               for key, value in (("general.architecture", "llama"), ("tokenizer.ggml.model", "no_vocab"))]
    entries += [text(f"llama.{key}") + struct.pack("<II", UINT32, value) for key, value in words.items()]
    entries += [text(f"llama.{key}") + struct.pack("<If", FLOAT32, value) for key, value in numbers.items()]
    return entries


def write(directory, path):
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    with open(directory / "model.safetensors", "rb") as source, open(path, "wb") as out:
        (size,) = struct.unpack("<Q", source.read(8))
        tensors = {name: tensor for name, tensor in json.loads(source.read(size)).items() if name != "__metadata__"}
        infos, offset = [], 0
        for name, tensor in tensors.items():
            shape, kind = tensor["shape"], F32 if len(tensor["shape"]) == 1 else BF16
            tensor["bytes"] = (4 if kind == F32 else 2) * shape[0] * (shape[1] if len(shape) == 2 else 1)
            infos.append(text(gguf_name(name)) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset))
            offset += -(-tensor["bytes"] // ALIGNMENT) * ALIGNMENT
        entries = metadata(config)
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + b"".join(infos))
        for name, tensor in tensors.items():
            begin, end = tensor["data_offsets"]
            source.seek(8 + size + begin)
            data = source.read(end - begin)
            for projection, count in heads.items():
                if projection in name:
                    width = len(data) // tensor["shape"][0]
                    data = b"".join(interleave([data[i:i + width] for i in range(0, len(data), width)], count))
            if len(tensor["shape"]) == 1:
                data = widen(data)
            out.write(b"\0" * (-out.tell() % ALIGNMENT))
            out.write(data)
        out.write(b"\0" * (-out.tell() % ALIGNMENT))
