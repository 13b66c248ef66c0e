"""The fixed batch of trainer_bench as PyTorch's trainers take it: padded tensors."""
import json

PAD = 0


def load(path):
    """Samples {"prompt", "response", "reward"}; groups are adjacent."""
    with open(path) as file:
        return json.load(file)


def advantages(samples, group):
    """GRPO: rewards of a group, centred and divided by their standard deviation."""
    result = []
    for first in range(0, len(samples), group):
        rewards = [sample["reward"] for sample in samples[first:first + group]]
        mean = sum(rewards) / group
        deviation = (sum((reward - mean) ** 2 for reward in rewards) / (group - 1)) ** 0.5
        result += [(reward - mean) / (deviation + 1e-4) for reward in rewards]
    return result


def pad(rows, left=False):
    """Token ids and mask, as long as the longest row."""
    import torch
    width = max(map(len, rows))
    ids, mask = torch.full((len(rows), width), PAD), torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def tokens(samples):
    return sum(len(sample["response"]) for sample in samples)
