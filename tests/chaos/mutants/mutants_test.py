#!/usr/bin/env python3
"""The checker catches every mutant of the code under faults that trigger its defect, and passes the real code.

    mutants_test.py BUILD_DIR [MUTANT...]
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import chaos  # noqa: E402
from cluster import ROLLOUTS  # noqa: E402

TRIES = 25  # runs within which a mutant must be caught
STUCK_SECONDS = 15


def every(seconds, kind, roles, length, begin=0.1, end=1.2):
    """The same fault repeatedly, rotating through the roles."""
    faults, at = [], begin
    while at < end:
        faults.append((round(at, 3), kind, roles[len(faults) % len(roles)], length))
        at += seconds
    return faults


# mutant: (role whose program is mutated, faults)
CASES = {
    "skip_fence": ("trainer", every(0.25, "zombie", ("trainer",), 0.2)),
    "forget_early": ("trainer", every(0.3, "kill", ("trainer",), 0.05)),
    "drop_dedupe": ("rollout", every(0.05, "lose", ROLLOUTS, 0.1)),
    "overwrite_blob": ("rollout", every(0.15, "late", ROLLOUTS, 0.3)),
    "publish_first": ("trainer", []),
}


def test(build, name):
    """Returns an error text, or None."""
    role, faults = CASES[name]
    binaries = os.path.join(build, "bin")
    mutant = os.path.join(build, "tests", "mutants", f"freshet-sim-{role}-{name}")
    broken = chaos.Scenario.fast(binaries, **{role: mutant})
    violations, summary, _ = chaos.run(f"real-{name}", chaos.Scenario.fast(binaries), faults)
    if violations:
        return f"the real code fails too: {violations[:3]}"
    for _ in range(TRIES):
        violations, summary, folder = chaos.run(name, broken, faults, seconds=STUCK_SECONDS)
        # Only the checker's findings count, not that a run broke down.
        found = [violation for violation in violations if not violation.startswith(chaos.BROKE_DOWN)]
        shutil.rmtree(folder, ignore_errors=True)
        if found:
            print(f"{name}: caught: {found[0]} ({len(found)} violations; {summary})", flush=True)
            return ""
    return f"not caught in {TRIES} runs"


def main():
    build, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or list(CASES)
    failures = 0
    for name in names:
        fault = test(build, name)
        if fault:
            failures += 1
            print(f"{name}: FAILED: {fault}", flush=True)
    print(f"{len(names) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
