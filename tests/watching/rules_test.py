#!/usr/bin/env python3
"""Checks the rules and runs the cases of every alert with promtool. Exits with 77 (skipped) without promtool."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "helm" / "freshet" / "rules").glob("*.yaml"))
CASES = sorted((ROOT / "tests" / "watching" / "rules").glob("*_test.yaml"))


def main():
    promtool = shutil.which("promtool")
    if promtool is None:
        print("skipped: not installed: promtool (package prometheus)")
        return 77
    if not RULES or not CASES:
        print("no rules, or no cases")
        return 1
    checked = subprocess.run([promtool, "check", "rules", "--lint=all", "--lint-fatal", *RULES])
    tested = subprocess.run([promtool, "test", "rules", *CASES])
    return 1 if checked.returncode or tested.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
