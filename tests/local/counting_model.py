"""A model whose answers are known: each token has one successor, so that the last token of a prompt
decides the text that follows. "a" is followed by the rest of the alphabet, "#" by the two bytes of
"é"; in chats, a conversation
with tools is answered with a call of `add`, a tool's result with a sentence, and the rest with the
alphabet. As a reward model, the score of a text is that of its last character."""

import json
import string
import struct

HIDDEN = 288  # one dimension for each token
CALL = ["<tool_call>", '{"name": "add", ', '"arguments": {"a": 1, "b": 2}}', "</tool_call>"]
ANSWER = ["The sum", " is 3."]
CALL_START, ANSWER_START, CHAT_START = "<|call|>", "<|answer|>", "<|chat|>"
END = "<|end|>"
CONTEXT = 512
EPSILON = 1e-6
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}"
    "{% if messages[-1].role == 'tool' %}" + ANSWER_START +
    "{% elif tools %}" + CALL_START + "{% else %}" + CHAT_START + "{% endif %}{% endif %}"
    "{# calls: <tool_call> #}"
)


def byte_characters():
    """The characters that stand for the 256 bytes in byte-level tokenizers."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + i) for i, byte in enumerate(others)}


def tokenizer_of(vocabulary, added, special):
    """tokenizer.json of byte-level BPE without merges. `added` are the tokens outside the vocabulary."""
    return {
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


def write_model(folder, scores=None, template=TEMPLATE):
    """Writes a Hugging Face directory: with `scores`, of bytes, that of a reward model."""
    vocabulary = {character: i for i, character in enumerate(byte_characters().values())}
    special = [CALL_START, ANSWER_START, CHAT_START, END]
    added = {token: 256 + i for i, token in enumerate([*CALL, *ANSWER, *special])}
    ids = vocabulary | added
    successors = {}
    for chain in ([CALL_START, *CALL, END], [ANSWER_START, *ANSWER, END],
                  [CHAT_START, *string.ascii_lowercase, END],
                  ["#", *(byte_characters()[byte] for byte in "é".encode()), END]):
        successors |= {ids[token]: ids[after] for token, after in zip(chain, chain[1:])}
    folder.mkdir()
    if scores is None:
        head = {"lm_head.weight": _successor_head(successors, ids[END])}
    else:
        head = {"score.weight": _score_head({ids[byte_characters()[b]]: s for b, s in scores.items()})}
    _write_weights(folder / "model.safetensors", head)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": HIDDEN,
        "hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 9,
        "num_key_value_heads": 1, "intermediate_size": 16, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "hidden_act": "silu", "eos_token_id": ids[END], "torch_dtype": "float32",
    }
    if scores is not None:
        config |= {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "score"}}
    settings = {"eos_token": END, "chat_template": template,
                "tokenizer_class": "PreTrainedTokenizerFast"}
    for name, content in (("config", config), ("tokenizer", tokenizer_of(vocabulary, added, special)),
                          ("tokenizer_config", settings)):
        (folder / f"{name}.json").write_text(json.dumps(content))


def _successor_head(successors, end):
    """Maps a token's embedding to its successor."""
    head = [[0.0] * HIDDEN for _ in range(HIDDEN)]
    for token in range(HIDDEN):
        head[successors.get(token, end)][token] = 2.0
    return head


def _score_head(scores):
    """Undoes the last norm, which multiplies an embedding."""
    norm = (1.0 / HIDDEN + EPSILON) ** -0.5
    return [[scores.get(token, 0.0) / norm for token in range(HIDDEN)]]


def _write_weights(path, head):
    """Attention and MLP add nothing. `head`: the name and the rows of the last matrix."""
    identity = [[float(i == j) for j in range(HIDDEN)] for i in range(HIDDEN)]
    zeros = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (32, HIDDEN),
             "self_attn.v_proj": (32, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
             "mlp.gate_proj": (16, HIDDEN), "mlp.up_proj": (16, HIDDEN),
             "mlp.down_proj": (HIDDEN, 16)}
    tensors = {f"model.layers.0.{name}.weight": (shape, [0.0] * (shape[0] * shape[1]))
               for name, shape in zeros.items()}
    for norm in ("model.norm", "model.layers.0.input_layernorm",
                 "model.layers.0.post_attention_layernorm"):
        tensors[f"{norm}.weight"] = ((HIDDEN,), [1.0] * HIDDEN)
    tensors["model.embed_tokens.weight"] = ((HIDDEN, HIDDEN), sum(identity, []))
    for name, rows in head.items():
        tensors[name] = ((len(rows), HIDDEN), sum(rows, []))
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
