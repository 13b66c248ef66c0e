#!/usr/bin/env python3
"""Builds Freshet's images from the Dockerfile and prints their sizes. `./dev image` runs this.

    build_images.py [--target TARGET]... [--base IMAGE | --local-base] [--archive DIR]

Uses docker if its daemon answers, else buildah as root with vfs storage and chroot isolation, which needs neither a
daemon nor mounts. Images are named PREFIXTARGET:TAG. --archive writes each as DIR/TARGET.tar, for "docker load",
"ctr images import" and "kind load image-archive". Without a registry, --local-base creates the Debian 12 base image
with debootstrap.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGETS = ["control", "compute", "compute-cuda", "reward-python", "env-python", "sandbox"]
BASE = "docker.io/library/debian:12"
LOCAL_BASE = "localhost/debian:12"
# Maximum image sizes in MB.
BOUNDS = {"control": 200}
UNITS = {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}


class Failure(Exception):
    """An error that the user can fix, with a one-line message."""


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)


def run(command, **options):
    """Runs a command and shows its output. Raises Failure if it fails."""
    done = subprocess.run(command, stdout=sys.stderr, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command[:6])} ... ended with exit code {done.returncode}")


def output(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command[:6])}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
    return done.stdout.strip()


def project_version():
    with open(os.path.join(REPOSITORY, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(freshet VERSION ([0-9.]+)", file.read()).group(1)


def revision():
    try:
        return output(["git", "-C", REPOSITORY, "rev-parse", "--short=12", "HEAD"])
    except (Failure, FileNotFoundError):
        return "unknown"


class Docker:
    name = "docker"

    def has(self, image):
        return subprocess.run(["docker", "image", "inspect", image], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def build(self, arguments, image):
        run(["docker", "build", *arguments, "-t", image, REPOSITORY], env={**os.environ, "DOCKER_BUILDKIT": "1"})

    def size_bytes(self, image):
        return int(output(["docker", "image", "inspect", "--format", "{{.Size}}", image]))

    def save(self, image, path):
        run(["docker", "save", "-o", path, image])

    def import_root(self, folder, image):
        tar = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
        run(["docker", "import", "-", image], stdin=tar.stdout)
        if tar.wait() != 0:
            raise Failure(f"tar of {folder} failed")


class Buildah:
    name = "buildah"

    def __init__(self, storage_driver):
        self.command = ["buildah", "--storage-driver", storage_driver]

    def has(self, image):
        return subprocess.run([*self.command, "inspect", "--type", "image", image], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def build(self, arguments, image):
        # --layers caches the build stage, which all targets share.
        run([*self.command, "bud", "--isolation", "chroot", "--layers", "--format", "docker", *arguments,
             "-t", image, REPOSITORY])

    def size_bytes(self, image):
        listed = json.loads(output([*self.command, "images", "--json", image]))
        number, unit = re.fullmatch(r"([0-9.]+) ?([kKMG]?B)", listed[0]["size"]).groups()
        return int(float(number) * UNITS[unit])

    def save(self, image, path):
        if os.path.exists(path):
            os.remove(path)  # buildah does not overwrite it
        run([*self.command, "push", "--quiet", image, f"docker-archive:{path}:{image}"])

    def import_root(self, folder, image):
        container = output([*self.command, "from", "scratch"])
        run([*self.command, "add", "--quiet", container, folder, "/"])
        run([*self.command, "commit", "--quiet", "--rm", container, image])


def choose_tool(wanted, storage_driver):
    docker_works = shutil.which("docker") is not None and subprocess.run(
        ["docker", "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    if wanted == "docker" or (wanted == "auto" and docker_works):
        if not docker_works:
            raise Failure("docker's daemon does not answer; start it, or use --tool buildah")
        return Docker()
    if shutil.which("buildah") is None:
        raise Failure("neither a docker daemon nor buildah found; apt install buildah")
    return Buildah(storage_driver)


def make_local_base(tool):
    """Creates a Debian 12 image with debootstrap, without a registry."""
    if tool.has(LOCAL_BASE):
        return
    if shutil.which("debootstrap") is None:
        raise Failure("--local-base needs debootstrap; apt install debootstrap")
    if os.geteuid() != 0:
        raise Failure("--local-base needs root, because debootstrap does")
    say(f"making {LOCAL_BASE} with debootstrap")
    with tempfile.TemporaryDirectory() as folder:
        run(["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", folder])
        run(["chroot", folder, "apt-get", "clean"])
        with open(os.path.join(folder, "etc/apt/sources.list"), "w", encoding="utf-8") as file:
            file.write("deb http://deb.debian.org/debian bookworm main\n"
                       "deb http://deb.debian.org/debian bookworm-updates main\n"
                       "deb http://deb.debian.org/debian-security bookworm-security main\n")
        tool.import_root(folder, LOCAL_BASE)


def find_ca(given):
    """The file with certificate authorities: --ca, else the one that pip uses on this machine, else None."""
    for path in [given, os.environ.get("PIP_CERT")]:
        if path:
            if not os.path.exists(path):
                raise Failure(f"--ca {path}: no such file")
            return path
    return None


def build_arguments(options, target, version):
    base = LOCAL_BASE if options.local_base else options.base
    arguments = ["--target", target, "--build-arg", f"BASE={base}", "--build-arg", f"VERSION={version}",
                 "--build-arg", f"REVISION={revision()}"]
    if options.jobs:
        arguments += ["--build-arg", f"JOBS={options.jobs}"]
    ca = find_ca(options.ca)
    if ca:
        arguments += ["--secret", f"id=ca,src={ca}"]
    return arguments


def build_all(options):
    version = project_version()
    tool = choose_tool(options.tool, options.storage_driver)
    if options.local_base:
        make_local_base(tool)
    rows = []
    for target in options.target or TARGETS:
        image = f"{options.prefix}{target}:{options.tag or version}"
        say(f"building {image} with {tool.name}")
        begin = time.monotonic()
        tool.build(build_arguments(options, target, version), image)
        size = tool.size_bytes(image)
        rows.append({"target": target, "image": image, "bytes": size, "seconds": round(time.monotonic() - begin, 1)})
        if options.archive:
            os.makedirs(options.archive, exist_ok=True)
            rows[-1]["archive"] = os.path.join(os.path.abspath(options.archive), f"{target}.tar")
            tool.save(image, rows[-1]["archive"])
    return rows


def too_large(rows):
    return [f"{row['image']} has {row['bytes'] / 1e6:.0f} MB, its bound is {BOUNDS[row['target']]} MB"
            for row in rows if row["bytes"] > 1e6 * BOUNDS.get(row["target"], float("inf"))]


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="./dev image", description="Builds the images and prints their sizes.")
    parser.add_argument("--target", action="append", choices=TARGETS,
                        help="build only this one; may be repeated (default: all)")
    parser.add_argument("--base", default=BASE, metavar="IMAGE", help=f"Debian 12 base image (default {BASE})")
    parser.add_argument("--local-base", action="store_true", help=f"create {LOCAL_BASE} with debootstrap and use it")
    parser.add_argument("--prefix", default="localhost/freshet-",
                        help="prefix of image names (default localhost/freshet-)")
    parser.add_argument("--tag", help="default: the version")
    parser.add_argument("--archive", metavar="DIR", help="also write each image as DIR/TARGET.tar")
    parser.add_argument("--tool", choices=["auto", "docker", "buildah"], default="auto")
    parser.add_argument("--storage-driver", default="vfs",
                        help="storage driver of buildah (default vfs, which needs no mounts)")
    parser.add_argument("--ca", metavar="FILE", help="certificate authorities for downloads (default: PIP_CERT)")
    parser.add_argument("--jobs", type=int, help="parallel compilations (default: one per core)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser.parse_args(arguments)


def main():
    options = parse()
    try:
        rows = build_all(options)
    except Failure as failure:
        sys.exit(f"dev image: {failure}")
    if options.json:
        print(json.dumps(rows))
    else:
        width = max(len(row["image"]) for row in rows)
        print(f"{'IMAGE':{width}}  {'MB':>7}  {'SECONDS':>7}")
        for row in rows:
            print(f"{row['image']:{width}}  {row['bytes'] / 1e6:7.1f}  {row['seconds']:7.1f}")
    large = too_large(rows)
    if large:
        sys.exit("dev image: " + "; ".join(large))


if __name__ == "__main__":
    main()
