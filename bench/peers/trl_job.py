"""A job of `freshet local` in the terms of TRL's GRPOTrainer: its options, prompts and rewards. The job is the resolved
one, as `freshet validate` prints it."""

MASK = (1 << 64) - 1


def check(job):
    """Raises ValueError for a job that TRL would train otherwise than Freshet does."""
    supported = {
        "model.dtype": (job["model"]["dtype"], "fp32"),
        "dataset.type": (job["dataset"]["type"], "template"),
        "warmup": (job["warmup"], {}),
        "trainer.minibatches_per_step": (job["trainer"]["minibatches_per_step"], 1),
        "loss.preset": (job["loss"]["preset"], "grpo"),
        "loss.anchor": (job["loss"]["anchor"], "proximal"),
        "loss, other keys": (sorted(set(job["loss"]) - {"preset", "anchor", "clip", "correction"}), []),
        "loss.clip": (sorted(job["loss"]["clip"]), ["high", "low"]),
        "filter.zero_variance": (job["filter"]["zero_variance"], False),
        "optimizer.schedule": (job["optimizer"]["schedule"], "constant"),
    }
    for name, component in job["reward"]["components"].items():
        supported[f"reward.components.{name}.type"] = (component["type"], "contains")
    for key, (value, needed) in supported.items():
        if value != needed:
            raise ValueError(f"{key}: {value}; the comparison with TRL needs {needed}")


def options(job, rows):
    """Arguments of GRPOConfig. `rows`: samples of a microbatch."""
    check(job)
    rollout, clip, optimizer = job["rollout"], job["loss"]["clip"], job["optimizer"]
    return {
        "seed": job["seed"], "max_steps": job["trainer"]["steps"], "shuffle_dataset": False,
        "num_generations": job["group_size"], "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": job["prompts_per_step"] * job["group_size"] // rows,
        "max_completion_length": rollout["max_new_tokens"], "temperature": rollout["temperature"],
        "top_p": rollout["top_p"], "top_k": rollout["top_k"], "repetition_penalty": rollout["repetition_penalty"],
        "loss_type": "grpo", "scale_rewards": "group", "epsilon": clip["low"], "epsilon_high": clip["high"],
        "beta": 0.0, "learning_rate": optimizer["learning_rate"], "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": optimizer["warmup_steps"], "adam_beta1": optimizer["beta1"], "adam_beta2": optimizer["beta2"],
        "adam_epsilon": optimizer["eps"], "weight_decay": optimizer["weight_decay"],
        "max_grad_norm": optimizer["grad_clip_norm"],
        "gradient_checkpointing": job["trainer"]["activation_checkpointing"],
        "use_cpu": True, "bf16": False,
    }


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def random_bits(seed, a, b=0):
    """RandomBits of base/random.h."""
    return mix(mix(mix(mix(seed) ^ a) ^ b))


def permute(key, size, index):
    """Permute of base/permutation.h."""
    half = 1
    while 1 << (2 * half) < size:
        half += 1
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for number in range(8):
            left, right = right, left ^ (random_bits(key, number, right) & low)
        index = left << half | right
        if index < size:
            return index


def row_order(seed, size, count):
    """The rows of the first `count` prompts of a job that shuffles `size` rows: RowOfOrdinal of base/row_order.h."""
    return [permute(random_bits(seed, ordinal // size), size, ordinal % size) for ordinal in range(count)]


def rows(job):
    """The rows of the job's prompts, in its order."""
    table, count = job["dataset"]["rows"], job["trainer"]["steps"] * job["prompts_per_step"]
    order = row_order(job["seed"], len(table), count) if job["dataset"]["shuffle"] else range(count)
    return [table[i % len(table)] for i in order]


def reward(job, row, completion):
    """The weighted sum of the components, each of which counts a text."""
    return sum(component["weight"] for component in job["reward"]["components"].values()
               if completion.count(component["text"].format(**row)) >= component["min_count"])
