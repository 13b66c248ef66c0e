#!/usr/bin/env python3
"""Generates the table of values in helm/freshet/README.md from the comments in helm/freshet/values.yaml.

usage: helm/generate_values_table.py [--check]     --check: changes nothing, exits 1 if the table is out of date

A comment that starts with "-- " describes the key below it including all nested keys; a further such comment inside is
an error. A key without one is described through its nested keys; a leaf without one is an error.
"""
import json
import pathlib
import re
import sys

try:
    import yaml
except ImportError:
    print("generate_values_table: needs PyYAML: apt install python3-yaml", file=sys.stderr)
    sys.exit(77)

CHART = pathlib.Path(__file__).resolve().parent / "freshet"
BEGIN, END = "<!-- values -->", "<!-- /values -->"
KEY = re.compile(r"^( *)([A-Za-z0-9_]+):(?: |$)(.*)$")


def lookup(values, path):
    for key in path:
        values = values[key]
    return values


def rows(text):
    """Returns (path, default, description) of every described key, in file order."""
    values = yaml.safe_load(text)
    path, comment, described = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = stripped[5:]
            continue
        match = KEY.match(line)
        if not match:
            continue
        depth = len(match.group(1)) // 2
        if described is not None and depth > described:
            if comment is not None:
                sys.exit(f"{CHART / 'values.yaml'}:{number}: {match.group(2)} and a key that contains it both have a "
                         "comment \"# -- ...\"")
            continue  # inside a key that is described as a whole
        described = None
        path = path[:depth] + [match.group(2)]
        value = lookup(values, path)
        if comment is not None:
            yield path, value, comment
            described, comment = depth, None
        elif match.group(3) or not isinstance(value, dict):
            sys.exit(f"{CHART / 'values.yaml'}:{number}: {'.'.join(path)} has no comment \"# -- ...\"")


def table(text):
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for path, value, comment in rows(text):
        default = json.dumps(value).replace("|", "\\|")
        lines.append(f"| `{'.'.join(path)}` | `{default}` | {comment.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def main():
    readme = CHART / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    made = f"{head}{BEGIN}\n{table((CHART / 'values.yaml').read_text(encoding='utf-8'))}\n{END}{tail}"
    if made == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{readme}: the table of values is out of date; run helm/generate_values_table.py", file=sys.stderr)
        return 1
    readme.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
