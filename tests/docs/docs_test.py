#!/usr/bin/env python3
"""Links, anchors, paths, tests and metrics that the documentation names exist.

    docs_test.py REPOSITORY
"""
import pathlib
import re
import sys

LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]+)?\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
# Paths of the repository in code spans, such as `examples/smoke.yaml`.
PATH = re.compile(r"`((?:bench|clients|docs|examples|proto|tests)/[\w./-]+)`")
TEST = re.compile(r"TEST(?:_F|_P)?\((\w+), *(\w+)")
METRIC = re.compile(r'"(freshet_[a-z_]+)"')
# No metric of a role: the name of a gRPC plugin, also used in a test.
NO_METRICS = {"freshet_service_names"}
# Folders of the roles; `local` serves the same metric names on its own port.
CODE = ("controller", "env_workers", "rollout", "services", "trainer", "weights")


def anchors(path):
    """Returns GitHub's anchors of a file's headings."""
    result = set()
    for heading in HEADING.findall(path.read_text()):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        result.add("#" + re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return result


def check_links(root, page):
    text = page.read_text()
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            yield f"{target} does not exist"
        elif anchor and anchor not in anchors(path):
            yield f"{target}{anchor}: no such heading"
    for name in PATH.findall(text):
        if not (root / name).exists():
            yield f"`{name}` does not exist"


def sources(root, folders):
    for folder in folders:
        yield from (root / folder).rglob("*.cc")
        yield from (root / folder).rglob("*.h")


def check_tests(root, page):
    """Checks test names in code spans: `Suite.Name`, `.Name` after one of the same suite, `Suite.*`."""
    known = {}
    for source in sources(root, ["tests"]):
        for suite, name in TEST.findall(source.read_text()):
            known.setdefault(suite, set()).add(name)
    suite = ""
    for span in re.findall(r"`([A-Z]\w+\.(?:\w+|\*)|\.[A-Z]\w+)`", page.read_text()):
        given, name = span.split(".")
        suite = given or suite
        if name not in known.get(suite, ()) and not (name == "*" and suite in known):
            yield f"`{suite}.{name}`: no such test"


def check_metrics(root, page):
    text = page.read_text()
    names = {name for source in sources(root, CODE) for name in METRIC.findall(source.read_text())}
    for name in sorted(names - NO_METRICS):
        if f"`{name}`" not in text:
            yield f"the metric `{name}` is missing"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    faults = []
    for page in [root / "README.md", root / "helm/freshet/README.md", *sorted((root / "docs").rglob("*.md")),
                 *sorted((root / "clients").glob("*/README.md"))]:
        faults += [f"{page.relative_to(root)}: {fault}" for fault in check_links(root, page)]
    faults += [f"docs/failure-model.md: {fault}" for fault in check_tests(root, root / "docs/failure-model.md")]
    faults += [f"docs/metrics.md: {fault}" for fault in check_metrics(root, root / "docs/metrics.md")]
    print("\n".join(faults) or "ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
