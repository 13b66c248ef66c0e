#!/usr/bin/env python3
"""llama.cpp as a peer of rollout.py: its prebuilt library v0.5.0 from npm, called without its header. Protocol:
serve.py; --format is bf16 or q8_0."""
import ctypes
import json
import math
import os
import pathlib

import gguf_writer
import serve

INT32, POINTER = ctypes.c_int32, ctypes.c_void_p
Q8_0 = 7  # llama_ftype
CONTEXT, BATCH, MICRO_BATCH, SEQUENCES = range(4)  # words of llama_context_params


class Parameters(ctypes.Structure):
    """Larger than any llama_*_params; the library reads and writes only its own part."""
    _fields_ = [("words", ctypes.c_uint32 * 256)]


class Batch(ctypes.Structure):
    _fields_ = [("size", INT32), ("tokens", ctypes.POINTER(INT32)), ("embeddings", POINTER),
                ("positions", ctypes.POINTER(INT32)), ("sequence_counts", ctypes.POINTER(INT32)),
                ("sequences", ctypes.POINTER(ctypes.POINTER(INT32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


def open_library():
    folder = pathlib.Path(os.environ["LLAMA_CPP_FOLDER"])
    ggml = ctypes.CDLL(str(folder / "libggml.v0.5.0.so"), mode=ctypes.RTLD_GLOBAL)
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    library = ctypes.CDLL(str(folder / "libllama.v0.5.0.so"))
    for name, result, *types in (
            ("llama_model_default_params", Parameters), ("llama_context_default_params", Parameters),
            ("llama_model_quantize_default_params", Parameters),
            ("llama_model_quantize", ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Parameters)),
            ("llama_model_load_from_file", POINTER, ctypes.c_char_p, Parameters),
            ("llama_init_from_model", POINTER, POINTER, Parameters), ("llama_free", None, POINTER),
            ("llama_set_n_threads", None, POINTER, INT32, INT32), ("llama_get_memory", POINTER, POINTER),
            ("llama_memory_seq_cp", None, POINTER, INT32, INT32, INT32, INT32),
            ("llama_batch_init", Batch, INT32, INT32, INT32), ("llama_batch_free", None, Batch),
            ("llama_decode", INT32, POINTER, Batch), ("llama_synchronize", None, POINTER),
            ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), POINTER, INT32),
            ("llama_sampler_init_dist", POINTER, ctypes.c_uint32), ("llama_sampler_free", None, POINTER),
            ("llama_sampler_sample", INT32, POINTER, POINTER, INT32)):
        function = getattr(library, name)
        function.restype, function.argtypes = result, types
    return library


class Model:
    def __init__(self, directory, form, threads):
        self.library, self.threads = open_library(), threads
        self.vocab_size = json.loads((pathlib.Path(directory) / "config.json").read_text())["vocab_size"]
        path = self._file(pathlib.Path(directory), form)
        self.model = self.library.llama_model_load_from_file(str(path).encode(), self.library.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")

    def _file(self, directory, form):
        path, plain = directory / f"{form}.gguf", directory / "bf16.gguf"
        unfinished = directory / f"{form}.part"
        if not path.exists() and form == "bf16":
            gguf_writer.write(directory, unfinished)
            unfinished.rename(path)
        elif not path.exists():
            self._file(directory, "bf16")
            parameters = self.library.llama_model_quantize_default_params()
            parameters.words[0], parameters.words[1] = self.threads, Q8_0
            if self.library.llama_model_quantize(str(plain).encode(), str(unfinished).encode(), ctypes.byref(parameters)):
                raise RuntimeError(f"llama.cpp does not quantize {plain}")
            unfinished.rename(path)
        return path


class Context:
    """The cache of `sequences` sequences of at most `length` tokens."""

    def __init__(self, model, sequences, length):
        self.library = model.library
        parameters = self.library.llama_context_default_params()
        parameters.words[CONTEXT] = sequences * -(-length // 256) * 256
        parameters.words[SEQUENCES] = sequences
        parameters.words[BATCH] = max(parameters.words[BATCH], length)
        self.handle = self.library.llama_init_from_model(model.model, parameters)
        if not self.handle:
            raise RuntimeError("llama.cpp creates no context")
        self.library.llama_set_n_threads(self.handle, model.threads, model.threads)
        self.batch = self.library.llama_batch_init(max(length, sequences), 0, 1)
        self.sampler = self.library.llama_sampler_init_dist(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.llama_sampler_free(self.sampler)
        self.library.llama_batch_free(self.batch)
        self.library.llama_free(self.handle)

    def run(self, rows):
        """Computes (token, position, sequence, whether logits are wanted)."""
        batch = self.batch
        batch.size = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.tokens[i], batch.positions[i], batch.logits[i] = token, position, wanted
            batch.sequence_counts[i], batch.sequences[i][0] = 1, sequence
        if self.library.llama_decode(self.handle, batch):
            raise RuntimeError("llama_decode failed")
        self.library.llama_synchronize(self.handle)

    def feed(self, ids, sequence):
        self.run([(token, i, sequence, i == len(ids) - 1) for i, token in enumerate(ids)])

    def copy(self, source, target):
        self.library.llama_memory_seq_cp(self.library.llama_get_memory(self.handle), source, target, -1, -1)

    def sample(self, row):
        return self.library.llama_sampler_sample(self.sampler, self.handle, row)


def decode(model, groups, samples, prompt, generate, limit_s):
    count = groups * samples
    with Context(model, count, prompt + generate) as context:
        tokens = []
        for group, ids in enumerate(serve.prompts(groups, prompt, model.vocab_size)):
            context.feed(ids, group * samples)
            for sample in range(samples):
                if sample > 0:
                    context.copy(group * samples, group * samples + sample)
                tokens.append(context.sample(-1))
        watch, steps = serve.Stopwatch(limit_s), 0
        while steps < generate - 1 and not watch.expired():
            context.run([(token, prompt + steps, i, True) for i, token in enumerate(tokens)])
            tokens = [context.sample(i) for i in range(count)]
            steps += 1
        return {"tokens": steps * count, "seconds": watch.seconds(), "generate": steps + 1}


def prefill(model, groups, prompt, limit_s):
    done = 0
    with Context(model, groups, prompt) as context:
        watch = serve.Stopwatch(limit_s)
        for ids in serve.prompts(groups, prompt, model.vocab_size):
            context.feed(ids, done)
            done += 1
            if watch.expired():
                break
        return {"tokens": done * prompt, "seconds": watch.seconds()}


def score(model, ids):
    with Context(model, 1, len(ids)) as context:
        context.run([(token, i, 0, True) for i, token in enumerate(ids)])
        logprobs = []
        for i, token in enumerate(ids[1:]):
            logits = context.library.llama_get_logits_ith(context.handle, i)[:model.vocab_size]
            top = max(logits)
            logprobs.append(logits[token] - top - math.log(sum(math.exp(value - top) for value in logits)))
        return {"logprobs": logprobs}


if __name__ == "__main__":
    options = serve.arguments(__doc__)
    serve.serve(lambda: Model(options.model, options.format, options.threads), decode=decode, prefill=prefill, score=score)
