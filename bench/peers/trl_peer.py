#!/usr/bin/env python3
"""TRL's GRPOTrainer as a peer of trainer.py: its training step on a fixed batch, in place of what it would generate. All
settings but those of the batch are TRL's defaults: bf16 products (autocast) and gradient checkpointing. The format fp32
turns the former off. Protocol: serve.py."""
import os
import tempfile

import serve
import training_batch

options = serve.arguments(__doc__)
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")


def tokenizer(vocab_size):
    import tokenizers
    import transformers
    words = {f"w{i}": i for i in range(vocab_size)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="w0", eos_token="w2", bos_token="w1")


def load():
    import torch
    torch.set_num_threads(options.threads)
    return None


def step(_, batch, steps, group):
    """Seconds of every step but the first."""
    import datasets
    import pyarrow
    import torch
    import transformers
    import trl
    samples = training_batch.load(batch)
    advantages = training_batch.advantages(samples, group)

    class FixedBatch(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            prompts, prompt_mask = training_batch.pad([sample["prompt"] for sample in samples], left=True)
            responses, response_mask = training_batch.pad([sample["response"] for sample in samples])
            return {"prompt_ids": prompts, "prompt_mask": prompt_mask, "completion_ids": responses,
                    "completion_mask": response_mask, "advantages": torch.tensor(advantages),
                    "num_items_in_batch": response_mask.sum()}

    class Times(transformers.TrainerCallback):
        ends = []

        def on_step_end(self, *_, **__):
            self.ends.append(watch.seconds())

    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(output_dir=folder, use_cpu=True, bf16=options.format != "fp32", num_generations=group,
                                per_device_train_batch_size=8, gradient_accumulation_steps=len(samples) // 8,
                                max_completion_length=1024, max_steps=steps + 1, learning_rate=1e-6, report_to="none",
                                save_strategy="no", logging_strategy="no", disable_tqdm=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32,
                                                                  local_files_only=True)
        # With a fingerprint of its own, the table is not pickled.
        table = pyarrow.table({"prompt": ["w3 w4"] * len(samples) * (steps + 1)})
        data = datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="batch")
        trainer = FixedBatch(model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=config,
                             train_dataset=data, processing_class=tokenizer(model.config.vocab_size),
                             callbacks=[Times()])
        watch = serve.Stopwatch()
        trainer.train()
    ends = Times.ends
    return {"seconds": [after - before for before, after in zip(ends, ends[1:])],
            "tokens": training_batch.tokens(samples)}


if __name__ == "__main__":
    serve.serve(load, step=step)
