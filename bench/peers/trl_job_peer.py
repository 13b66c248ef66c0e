#!/usr/bin/env python3
"""TRL's GRPOTrainer as a peer of stories_trl.py: trains a whole job, with transformers' generation. Protocol: serve.py."""
import os
import statistics
import tempfile

import serve
import trl_job

arguments = serve.arguments(__doc__)
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")


def load():
    import torch
    import transformers
    import trl  # noqa: F401  imported before the training is timed
    torch.set_num_threads(arguments.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, local_files_only=True)
    return model, transformers.AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)


def train(loaded, job, rows):
    """Trains with the job file `job`, in microbatches of `rows` samples. `seconds`: of the training loop; `rewards` and
    `walls`: mean reward of each step, and seconds until its end."""
    import datasets
    import pyarrow
    import transformers
    import trl
    import yaml
    with open(job) as file:
        job = yaml.safe_load(file)
    model, tokenizer = loaded
    table, rewards, walls = trl_job.rows(job), [], []

    def score(completions, row, **_):
        values = [trl_job.reward(job, table[number], completion) for number, completion in zip(row, completions)]
        rewards.append(statistics.fmean(values))
        return values

    class Steps(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            walls.append(watch.seconds())

    prompts = [job["dataset"]["prompt"].format(**row) for row in table]
    # With a fingerprint of its own, the table is not pickled.
    data = datasets.Dataset(datasets.table.InMemoryTable(
        pyarrow.table({"prompt": prompts, "row": list(range(len(prompts)))})), fingerprint="job")
    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(output_dir=folder, report_to="none", save_strategy="no", logging_strategy="no",
                                disable_tqdm=True, **trl_job.options(job, rows))
        trainer = trl.GRPOTrainer(model=model, reward_funcs=score, args=config, train_dataset=data,
                                  processing_class=tokenizer, callbacks=[Steps()])
        watch = serve.Stopwatch()
        trainer.train()
        seconds = watch.seconds()
    return {"seconds": seconds, "samples": len(table) * job["group_size"], "rewards": rewards, "walls": walls}


if __name__ == "__main__":
    serve.serve(load, train=train)
