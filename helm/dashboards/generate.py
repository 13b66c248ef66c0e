#!/usr/bin/env python3
"""Generates the chart's dashboards, helm/freshet/dashboards/*.json.

    generate.py            write the files
    generate.py --check    exit 1 and list the files that are out of date
"""
import json
import pathlib
import sys

import infrastructure
import overview
import pipeline
import policy
import signals

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "freshet" / "dashboards"
MAX_PANELS = 16


def files():
    """Returns {file name: text}."""
    made = {}
    for dashboard in (module.DASHBOARD for module in (overview, pipeline, policy, signals, infrastructure)):
        assert len(dashboard["panels"]) <= MAX_PANELS, f"{dashboard['uid']}: {len(dashboard['panels'])} panels"
        name = dashboard["uid"].removeprefix("freshet-") + ".json"
        made[name] = json.dumps(dashboard, indent=2) + "\n"
    return made


def check(made):
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    for name in sorted(made.keys() | there.keys()):
        if made.get(name) != there.get(name):
            yield f"{FOLDER / name} is out of date: run {sys.argv[0]}"


def main():
    made = files()
    if sys.argv[1:] == ["--check"]:
        faults = list(check(made))
        print("\n".join(faults) or "ok")
        return 1 if faults else 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
