#!/usr/bin/env python3
"""Builds the tools of the chart's tests that Debian lacks: helm, helm-unittest, kubeconform, grpcurl.

    tools.py [--folder DIR] [TOOL...]      prints the folder with the programs

They are Go modules at fixed versions, which the go command verifies with Go's checksum database. Each version is built
once into ~/.cache/freshet/k8s-tools, in about five minutes on two cores. Needs Go 1.19 or newer: Go 1.21 and newer
fetch 1.26 themselves, for older ones this program fetches it. Exits with 1 and a one-line message if Go is missing or
a download fails.
"""
import argparse
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

GO = "1.26.8"
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "freshet", "k8s-tools")
KUBERNETES_MINOR = 34  # the cluster version that `helm template` and `helm lint` assume


@dataclasses.dataclass(frozen=True)
class Tool:
    module: str
    version: str
    package: str  # path in the module
    flags: tuple = ()  # linker flags; {version} is filled in
    replace: tuple = ()  # replace directives of the module, which only apply to a main module


HELM = "helm.sh/helm/v3"
TOOLS = {
    # Without these flags helm reports version 0 and assumes a very old cluster.
    "helm": Tool(HELM, "v3.22.0", "cmd/helm", (
        f"-X {HELM}/internal/version.version={{version}}",
        f"-X {HELM}/pkg/chartutil.k8sVersionMajor=1", f"-X {HELM}/pkg/chartutil.k8sVersionMinor={KUBERNETES_MINOR}",
        f"-X {HELM}/pkg/lint/rules.k8sVersionMajor=1", f"-X {HELM}/pkg/lint/rules.k8sVersionMinor={KUBERNETES_MINOR}")),
    "helm-unittest": Tool("github.com/helm-unittest/helm-unittest", "v1.1.2", "cmd/helm-unittest", (), (
        "github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0",)),
    "kubeconform": Tool("github.com/yannh/kubeconform", "v0.8.0", "cmd/kubeconform", ("-X main.version={version}",)),
    "grpcurl": Tool("github.com/fullstorydev/grpcurl", "v1.9.4", "cmd/grpcurl", ("-X main.version={version}",)),
}


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)


def run(command, folder=None, environment=None):
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"tools: {' '.join(command[:5])}: exit {done.returncode}: {done.stderr.strip()[-1500:]}")
    return done.stdout.strip()


def version_of(text):
    """Returns (1, 26) for "go version go1.26.8 linux/amd64", else None."""
    found = re.search(r"go(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else None


def find_go(folder):
    """Returns a go command that can build for Go 1.26."""
    go = shutil.which("go")
    if go is None:
        sys.exit("tools: go is not installed; apt install golang-go, or https://go.dev/dl")
    version = version_of(run([go, "version"]))
    if version is None:
        sys.exit(f"tools: cannot read the version of {go}")
    if version >= (1, 21):
        return go  # GOTOOLCHAIN=auto fetches the required version
    say(f"fetching Go {GO}")
    module = f"golang.org/toolchain@v0.0.1-go{GO}.linux-amd64"
    cache = os.path.join(folder, "go-mod")
    found = run([go, "mod", "download", "-json", module],
                environment={**os.environ, "GOMODCACHE": cache, "GOFLAGS": "-modcacherw"})
    root = re.search(r'"Dir": "([^"]+)"', found).group(1)
    return os.path.join(root, "bin", "go")


def go_mod(tool, name):
    """Returns go.mod of a temporary module that builds the tool."""
    lines = [f"module freshet.test/{name}", "", "go 1.26.0", "", f"require {tool.module} {tool.version}"]
    return "\n".join(lines + [f"replace {line}" for line in tool.replace]) + "\n"


def build(go, name, tool, target, folder):
    say(f"building {name} {tool.version}")
    begin = time.monotonic()
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -modcacherw -trimpath -buildvcs=false",
                   "GOTOOLCHAIN": "auto", "GOMODCACHE": os.path.join(folder, "go-mod"),
                   "GOCACHE": os.path.join(folder, "go-build")}
    flags = " ".join(["-s -w"] + [flag.format(version=tool.version) for flag in tool.flags])
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "go.mod"), "w", encoding="utf-8") as file:
            file.write(go_mod(tool, name))
        run([go, "build", "-ldflags", flags, "-o", target + ".new", f"{tool.module}/{tool.package}"], work, environment)
    os.replace(target + ".new", target)
    say(f"built {name} in {time.monotonic() - begin:.0f} s")


def main():
    parser = argparse.ArgumentParser(description="Builds helm, helm-unittest, kubeconform and grpcurl.")
    parser.add_argument("--folder", default=CACHE)
    parser.add_argument("tool", nargs="*", help=f"{', '.join(TOOLS)} (default: all)")
    options = parser.parse_args()
    unknown = [name for name in options.tool if name not in TOOLS]
    if unknown:
        sys.exit(f"tools: no such tool: {unknown[0]}; choose from {', '.join(TOOLS)}")
    folder = os.path.abspath(options.folder)
    programs = os.path.join(folder, "bin")
    os.makedirs(programs, exist_ok=True)
    go = None
    for name in options.tool or TOOLS:
        tool, target = TOOLS[name], os.path.join(programs, name)
        mark = os.path.join(folder, f"{name}.version")
        if os.path.exists(target) and os.path.exists(mark) and open(mark, encoding="utf-8").read() == tool.version:
            continue
        go = go or find_go(folder)
        build(go, name, tool, target, folder)
        with open(mark, "w", encoding="utf-8") as file:
            file.write(tool.version)
    for cache in ("go-build", "go-mod"):  # 1.6 GB, no longer needed
        shutil.rmtree(os.path.join(folder, cache), ignore_errors=True)
    print(programs)


if __name__ == "__main__":
    main()
