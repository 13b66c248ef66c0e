#!/usr/bin/env python3
"""Checks the chart with helm's tools. `./dev ci` and `./dev k8s-test` run this.

    check_chart.py [--tools DIR] [--schemas DIR] [lint|unittest|manifests]...     (default: all three)

lint       `helm lint --strict` with every ci/*-values.yaml
unittest   `helm unittest --strict`
manifests  `helm template` with every ci/*-values.yaml through `kubeconform -strict`, including custom resources.
           Together they must render every kind in the templates. LeaderWorkerSet has no schema here; the unit tests
           check it. Every selector of a PrometheusRule must name namespace and release.

Exits with 1 and prints the faults.
"""
import argparse
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHART = os.path.join(os.path.dirname(os.path.dirname(HERE)), "helm", "freshet")
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(CHART), "dashboards"))
import promql  # noqa: E402
import schemas  # noqa: E402
import tools  # noqa: E402

WITHOUT_SCHEMA = ("LeaderWorkerSet",)


class Fault(Exception):
    """A fault of the chart."""


def run(command, input_text=None):
    done = subprocess.run(command, input=input_text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Fault(f"{' '.join(os.path.relpath(word) if os.path.isabs(word) else word for word in command)}:\n"
                    f"{done.stdout.strip()[-8000:]}")
    return done.stdout


def values_files():
    found = sorted(glob.glob(os.path.join(CHART, "ci", "*-values.yaml")))
    if not found:
        raise Fault(f"{CHART}/ci has no *-values.yaml")
    return found


def kinds_of(manifests):
    """Returns the kinds of rendered documents."""
    return set(re.findall(r"^kind: *\"?(\w+)", manifests, re.M))


def kinds_of_templates(texts):
    """Returns the kinds that templates can render: the literal ones, and both kinds of a pool for
    `kind: {{ $cfg.kind }}`."""
    kinds = set()
    for text in texts:
        kinds |= kinds_of(text)
        if re.search(r"^kind: *{{ *\$cfg\.kind *}}", text, re.M):
            kinds |= {"Deployment", "LeaderWorkerSet"}
    return kinds


def unscoped_selectors(manifests):
    """Returns the selectors of rendered PrometheusRules that would match other releases too."""
    import yaml  # only needed for rules
    found = []
    for document in yaml.safe_load_all(manifests):
        if document and document["kind"] == "PrometheusRule":
            for rule in [rule for group in document["spec"]["groups"] for rule in group["rules"]]:
                found += [selector for selector in promql.selectors(rule["expr"])
                          if not re.search(r'{namespace="[^"]+",release="[^"]+"[,}]', selector)]
    return found


def lint(helm, **_):
    for values in values_files():
        run([helm, "lint", "--strict", CHART, "--values", values])


def unittest(unittest_program, **_):
    run([unittest_program, "--strict", CHART])


def manifests(helm, kubeconform, folder, **_):
    version = schemas.KUBERNETES.version[1:]
    location = os.path.join(folder, "{{ .ResourceKind }}{{ .KindSuffix }}.json")
    rendered = set()
    for values in values_files():
        text = run([helm, "template", "freshet", CHART, "--namespace", "rl", "--values", values])
        rendered |= kinds_of(text)
        unscoped = unscoped_selectors(text)
        if unscoped:
            raise Fault(f"{os.path.relpath(values)}: rules match other releases through {', '.join(unscoped)}")
        try:
            run([kubeconform, "-strict", "-summary", "-kubernetes-version", version, "-skip", ",".join(WITHOUT_SCHEMA),
                 "-schema-location", location], text)
        except Fault as fault:
            raise Fault(f"{os.path.relpath(values)}: {fault}") from None
    texts = []
    for path in glob.glob(os.path.join(CHART, "templates", "**", "*.*"), recursive=True):
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    missing = kinds_of_templates(texts) - rendered
    if missing:
        raise Fault(f"no ci/*-values.yaml renders {', '.join(sorted(missing))}")


CHECKS = {"lint": lint, "unittest": unittest, "manifests": manifests}


def main():
    parser = argparse.ArgumentParser(description="Checks the chart with helm lint, helm-unittest and kubeconform.")
    parser.add_argument("--tools", default=os.path.join(tools.CACHE, "bin"), help="folder with the tools")
    parser.add_argument("--schemas", default=os.path.join(tools.CACHE, "schemas"), help="folder for the schemas")
    parser.add_argument("check", nargs="*", help=f"{', '.join(CHECKS)} (default: all)")
    options = parser.parse_args()
    unknown = [name for name in options.check if name not in CHECKS]
    if unknown:
        sys.exit(f"check_chart: no such check: {unknown[0]}; choose from {', '.join(CHECKS)}")
    names = options.check or list(CHECKS)
    programs = {"helm": "helm", "unittest_program": "helm-unittest", "kubeconform": "kubeconform"}
    programs = {key: os.path.join(options.tools, name) for key, name in programs.items()}
    folder = schemas.make(options.schemas) if "manifests" in names else ""
    failed = False
    for name in names:
        try:
            CHECKS[name](**programs, folder=folder)
            print(f"ok      chart: {name}")
        except (Fault, FileNotFoundError) as fault:
            failed = True
            print(f"FAILED  chart: {name}: {fault}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
