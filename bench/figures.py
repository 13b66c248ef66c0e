"""Figures beside their goals, in the form that all benches print and write."""
import json


def bound(name, ours, limit, unit, lower_is_better=False):
    """A figure that must not be worse than `limit`."""
    if lower_is_better:
        ratio = limit / ours if ours > 0 else float("inf")
    else:
        ratio = ours / limit
    return {"name": name, "ours": ours, "peer": limit, "peer_name": "bound", "ratio": ratio, "unit": unit, "goal": 1}


def report(rows, path, extra=None):
    """Prints a line per figure, writes them to `path`, and what they were made from, if given, to NAME-raw.json beside
    it; returns how many goals are missed."""
    missed = 0
    for row in rows:
        met = "" if "goal" not in row else ("  met" if row["ratio"] >= row["goal"] else "  MISSED")
        missed += met.endswith("MISSED")
        print(f"{row['name']:60} {row['ours']:8.3f} {row['unit']:9} {row['peer_name']} {row['peer']:g}"
              f"  ratio {row['ratio']:.2f}{met}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")
    if extra:
        path.with_name(f"{path.stem}-raw.json").write_text(json.dumps(extra, indent=1) + "\n")
    return missed
