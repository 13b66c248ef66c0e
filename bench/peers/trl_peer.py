#!/usr/bin/env python3
"""TRL's GRPOTrainer as a peer of trainer.py: its training step on a fixed batch, in place of what it would generate. All
settings but those of the batch are TRL's defaults: bf16 products (autocast) and gradient checkpointing. The format fp32
turns the former off. Protocol: serve.py."""
import os
import queue
import tempfile
import threading

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


class Training:
    """GRPOTrainer.train() in a thread, one training step at a time. The first one is not measured."""

    def __init__(self, batch, group):
        self.samples, self.group = training_batch.load(batch), group
        self.begin, self.ended = queue.Queue(), queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()
        self.step()

    def step(self):
        """Returns its seconds."""
        self.begin.put(None)
        result = self.ended.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def run(self):
        try:
            with tempfile.TemporaryDirectory() as folder:
                self.trainer(folder).train()
            self.ended.put(RuntimeError("the training is over"))
        except BaseException as error:
            self.ended.put(error)

    def trainer(self, folder):
        import datasets
        import pyarrow
        import torch
        import transformers
        import trl
        torch.set_num_threads(options.threads)  # of this thread
        samples, training = self.samples, self
        advantages = training_batch.advantages(samples, self.group)

        class FixedBatch(trl.GRPOTrainer):
            def _generate_and_score_completions(self, inputs):
                prompts, prompt_mask = training_batch.pad([sample["prompt"] for sample in samples], left=True)
                responses, response_mask = training_batch.pad([sample["response"] for sample in samples])
                return {"prompt_ids": prompts, "prompt_mask": prompt_mask, "completion_ids": responses,
                        "completion_mask": response_mask, "advantages": torch.tensor(advantages),
                        "num_items_in_batch": response_mask.sum()}

        class OneAtATime(transformers.TrainerCallback):
            def on_step_begin(self, *_, **__):
                training.begin.get()
                self.watch = serve.Stopwatch()

            def on_step_end(self, *_, **__):
                training.ended.put(self.watch.seconds())

        config = trl.GRPOConfig(output_dir=folder, use_cpu=True, bf16=options.format != "fp32",
                                num_generations=self.group, per_device_train_batch_size=8,
                                gradient_accumulation_steps=len(samples) // 8, max_completion_length=1024,
                                max_steps=1000, learning_rate=1e-6, report_to="none", save_strategy="no",
                                logging_strategy="no", disable_tqdm=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32,
                                                                  local_files_only=True)
        # With a fingerprint of its own, the table is not pickled.
        table = pyarrow.table({"prompt": ["w3 w4"] * len(samples)})
        data = datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="batch")
        return FixedBatch(model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=config,
                          train_dataset=data, processing_class=tokenizer(model.config.vocab_size),
                          callbacks=[OneAtATime()])


def step(trainings, batch, group):
    """One training step."""
    if batch not in trainings:
        trainings[batch] = Training(batch, group)
    training = trainings[batch]
    return {"seconds": training.step(), "tokens": training_batch.tokens(training.samples)}


if __name__ == "__main__":
    serve.serve(dict, step=step)
