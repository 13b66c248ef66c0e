"""Benchmark figures with their goals, printed and written in one format by all benches."""
import json


def bound(name, ours, limit, unit, lower_is_better=False):
    """A row for a figure that must not be worse than `limit`."""
    if lower_is_better:
        ratio = limit / ours if ours > 0 else float("inf")
    else:
        ratio = ours / limit
    return {"name": name, "ours": ours, "peer": limit, "peer_name": "bound", "ratio": ratio, "unit": unit, "goal": 1}


def report(rows, path, extra=None):
    """Prints one line per figure and writes them to `path`. Writes `extra`, the raw data, to NAME-raw.json beside it.
    Returns the number of missed goals."""
    missed = 0
    for row in rows:
        met = "" if "goal" not in row else ("  met" if row["ratio"] >= row["goal"] else "  MISSED")
        missed += met.endswith("MISSED")
        print(f"{row['name']:60} {row['ours']:8.3f} {row['unit']:9} {row['peer_name']} {row['peer']:g}"
              f"  ratio {row['ratio']:.2f}{met}")
        if "note" in row:
            print(f"    {row['note']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")
    if extra:
        path.with_name(f"{path.stem}-raw.json").write_text(json.dumps(extra, indent=1) + "\n")
    return missed


def markdown(rows):
    """The rows as a table for the documentation."""
    lines = ["| figure | measured | compared with | ratio | goal | | notes |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        goal, met = f"{row.get('goal', '')}", ""
        if goal:
            met = "met" if row["ratio"] >= row["goal"] else "missed"
        lines.append(f"| {row['name']} | {row['ours']:,.4g} {row['unit']} | {row['peer_name']}: {row['peer']:,.4g} "
                     f"| {row['ratio']:.2f} | {goal} | {met} | {row.get('note', '')} |")
    return "\n".join(lines) + "\n"
