#!/usr/bin/env python3
"""Assembles the root file system of an image: programs, their shared libraries, and a bill of materials (SBOM).

    assemble_root.py control|compute|sandbox DIR --version V [--bin build/bin] [--torch DIR]
    assemble_root.py compute-cuda DIR --version V --from-root DIR

Runs in the build stage of the Dockerfile and copies libraries from its Debian. Only libraries that ldd reports for a
program are copied. At the end every program is started in a chroot of the finished tree, so a missing library fails the
build.

DIR/usr/share/freshet holds sbom.spdx.json (SPDX 2.3), packages.txt (human-readable: kind, name, version, licence file)
and the examples. DIR/usr/share/doc/PACKAGE/copyright holds the licences.
"""
import argparse
import datetime
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

LIBRARIES = "usr/lib/x86_64-linux-gnu"
TORCH_LIBRARIES = "usr/lib/freshet"
USER_ID = 10001  # as in the Dockerfile

PROGRAMS = {
    "control": ["freshet", "freshet-controller", "freshet-reward", "freshet-env"],
    "compute": ["freshet", "freshet-local", "freshet-rollout", "freshet-trainer"],
    "sandbox": ["freshet-sandbox"],
}
# Beside the programs.
PROGRAM_LIBRARIES = {"sandbox": ["libfreshet_confine.so"]}
# Debian programs, for the chart's built-in Redis.
SYSTEM_PROGRAMS = {"control": ["redis-server", "redis-cli"], "compute": [], "sandbox": []}
# The part of the wheels that a CPU needs: 364 MB of 1.2 GB. The rest is CUDA kernels, Python bindings and profilers.
TORCH_CPU = ["torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1",
             "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"]
TORCH_CUDA = ["torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cuda_linalg.so", "torch/lib/libc10_cuda.so",
              "torch/lib/libtorch_nvshmem.so", "torch/lib/libcaffe2_nvrtc.so"]
# Libraries of the wheels that are loaded with dlopen, so no NEEDED entry names them.
OPENED_BY_NAME = ["libcudnn_*.so*", "libnvrtc-builtins.so*", "libnvrtc.so*", "libcublasLt.so*", "libnvJitLink.so*"]
# Left out of the CUDA wheels: bootstrap plugins for network fabrics that pods do not have.
LEFT_OUT = ["nvshmem_bootstrap_*", "nvshmem_transport_*", "libcufile_rdma.so*"]
# Header-only and static libraries, which no shared library of the tree reveals.
COMPILED_IN = ["nlohmann-json3-dev", "libcli11-dev", "libboost1.74-dev"]
KERNELS = "libfreshet_cuda.so"  # opened by name
# Libraries of the GPU driver, which the node mounts into the container.
OF_THE_NODE = ["libcuda.so.1", "libnvidia-ml.so.1"]
CUDA_FOLDERS = ["nvidia/cu13/lib", "nvidia/cudnn/lib", "nvidia/cusparselt/lib", "nvidia/nccl/lib", "nvidia/nvshmem/lib"]


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"assemble_root: {' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def make_skeleton(root):
    for folder in ["etc", "usr/bin", LIBRARIES, "usr/lib64", "usr/share/doc", "usr/share/freshet/examples",
                   "home/freshet", "tmp", "proc", "sys", "dev", "run", "etc/ssl/certs", "usr/lib/ssl"]:
        os.makedirs(os.path.join(root, folder))
    for name, target in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")]:
        os.symlink(target, os.path.join(root, name))
    os.chmod(os.path.join(root, "tmp"), 0o1777)
    write(root, "etc/passwd", "root:x:0:0:root:/:/nonexistent\n"
          f"freshet:x:{USER_ID}:{USER_ID}:Freshet:/home/freshet:/nonexistent\n")
    write(root, "etc/group", f"root:x:0:\nfreshet:x:{USER_ID}:\n")
    write(root, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    shutil.copyfile("/etc/ssl/certs/ca-certificates.crt", os.path.join(root, "etc/ssl/certs/ca-certificates.crt"))
    # Where OpenSSL looks for public roots.
    os.symlink("/etc/ssl/certs/ca-certificates.crt", os.path.join(root, "usr/lib/ssl/cert.pem"))


def write(root, path, text):
    with open(os.path.join(root, path), "w", encoding="utf-8") as out:
        out.write(text)


def install(root, source, target, mode=0o755):
    path = os.path.join(root, target)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copyfile(os.path.realpath(source), path)
    os.chmod(path, mode)
    return path


def strip(path):
    """Removes symbols that only debuggers use: a fifth of libtorch_cpu.so."""
    run("strip", "--strip-unneeded", path)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(root):
    for folder in ["usr/bin", TORCH_LIBRARIES]:
        for path in sorted(glob.glob(os.path.join(root, folder, "*"))):
            if not os.path.islink(path) and is_elf(path):
                yield path


def take_needed_libraries(root):
    """Copies the libraries that the loader resolves outside of the tree into it. Returns their paths."""
    taken = {}
    environment = {**os.environ, "LD_LIBRARY_PATH": os.path.join(root, TORCH_LIBRARIES)}
    for path in elf_files(root):
        for line in run("ldd", path, env=environment).splitlines():
            if "not found" in line and line.split()[0] not in OF_THE_NODE:
                sys.exit(f"assemble_root: {path} needs a missing library: {line.strip()}")
            found = re.search(r"(?:=> )?(/\S+) \(0x", line)
            if not found:
                continue
            library = found.group(1)
            if os.path.realpath(library).startswith(os.path.realpath(root) + os.sep) or library in taken:
                continue
            name = os.path.basename(library)
            install(root, library, f"{LIBRARIES}/{name}")
            loader = os.path.join(root, "usr/lib64", name)
            if name.startswith("ld-linux") and not os.path.lexists(loader):  # compute-cuda starts from compute's tree
                os.symlink(f"../lib/x86_64-linux-gnu/{name}", loader)
            taken[library] = True
    return list(taken)


def package_of(path):
    """The Debian package that owns a file. Tries the path with and without /usr."""
    real = os.path.realpath(path)
    for candidate in dict.fromkeys([path, real, real.removeprefix("/usr"), "/usr" + path]):
        done = subprocess.run(["dpkg-query", "-S", candidate], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode == 0:
            return done.stdout.split(": ")[0].split(",")[0].strip()
    sys.exit(f"assemble_root: {path} belongs to no package")


def debian_entries(root, files):
    entries = {}
    for package in sorted({package_of(path) for path in files} | set(COMPILED_IN)):
        name = package.split(":")[0]
        version, source = run("dpkg-query", "-W", "-f=${Version}\\t${source:Package}", package).split("\t")
        copyright_file = f"/usr/share/doc/{name}/copyright"
        licence = ""
        if os.path.exists(copyright_file):
            licence = f"usr/share/doc/{name}/copyright"
            install(root, copyright_file, licence, 0o644)
        purl = f"pkg:deb/debian/{name}@{urllib.parse.quote(version, safe='')}?arch=amd64&distro=debian-12"
        entries[name] = {"kind": "deb", "name": name, "version": version, "source": source, "purl": purl,
                         "licence": licence}
    return list(entries.values())


def wheel_entries(root, tree):
    entries = []
    for info in sorted(glob.glob(os.path.join(tree, "*.dist-info"))):
        with open(os.path.join(info, "METADATA"), encoding="utf-8") as file:
            head = file.read().split("\n\n")[0]
        name = re.search(r"^Name: (.*)$", head, re.M).group(1)
        version = re.search(r"^Version: (.*)$", head, re.M).group(1)
        texts = [path for pattern in ["LICENSE*", "License*", "licenses/LICENSE*", "licenses/License*", "licenses/NOTICE*"]
                 for path in sorted(glob.glob(os.path.join(info, pattern))) if os.path.isfile(path)]
        for text in texts:
            install(root, text, f"usr/share/doc/{name}/{os.path.basename(text)}", 0o644)
        entries.append({"kind": "pypi", "name": name, "version": version, "source": name,
                        "purl": f"pkg:pypi/{name}@{version}",
                        "licence": f"usr/share/doc/{name}/{os.path.basename(texts[0])}" if texts else ""})
    return entries


def crate_entries(root):
    """The Rust crates that text/Cargo.lock pins, with the licences in their sources."""
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked", "--offline",
                              "--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path", "text/Cargo.toml"))
    entries = []
    for package in sorted(metadata["packages"], key=lambda package: (package["name"], package["version"])):
        if package["source"] is None:
            continue  # our own
        name, version = package["name"], package["version"]
        folder = os.path.dirname(package["manifest_path"])
        texts = sorted(path for pattern in ["LICEN[CS]E*", "COPYING*", "UNLICENSE*"]
                       for path in glob.glob(os.path.join(folder, pattern)) if os.path.isfile(path))
        for text in texts:
            install(root, text, f"usr/share/doc/rust-{name}/{os.path.basename(text)}", 0o644)
        entries.append({"kind": "crate", "name": name, "version": version, "source": name,
                        "purl": f"pkg:cargo/{name}@{version}",
                        "declared": (package["license"] or "NOASSERTION").replace("/", " OR "),
                        "licence": f"usr/share/doc/rust-{name}/{os.path.basename(texts[0])}" if texts else ""})
    return entries


def write_bill(root, image, version, entries):
    own = {"kind": "freshet", "name": "freshet", "version": version, "source": "freshet",
           "purl": f"pkg:generic/freshet@{version}", "licence": ""}
    entries = [own] + entries
    lines = ["\t".join([e["kind"], e["name"], e["version"], e["licence"] or "-"]) for e in entries]
    write(root, "usr/share/freshet/packages.txt", "\n".join(lines) + "\n")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now(datetime.timezone.utc).timestamp()))
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Two versions of a crate may be linked.
    names = [f"{e['kind']}-{e['name']}" + (f"-{e['version']}" if e["kind"] == "crate" else "") for e in entries]
    ids = ["SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name) for name in names]
    packages = [{
        "SPDXID": spdx_id, "name": e["name"], "versionInfo": e["version"], "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
        "licenseDeclared": e.get("declared", "NOASSERTION"),
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": e["purl"]}],
    } for spdx_id, e in zip(ids, entries)]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": ids[0]}]
    relations += [{"spdxElementId": ids[0], "relationshipType": "DEPENDS_ON", "relatedSpdxElement": other}
                  for other in ids[1:]]
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"freshet-{image}-{version}",
        "documentNamespace": f"urn:freshet:sbom:{image}:{version}:{epoch}",
        "creationInfo": {"created": created, "creators": ["Tool: images/assemble_root.py"]},
        "packages": packages, "relationships": relations}
    write(root, "usr/share/freshet/sbom.spdx.json", json.dumps(document, indent=1) + "\n")


def check_programs(root, programs, version):
    """Starts each program in a chroot of the finished tree, so that missing libraries are found."""
    for program in programs:
        done = subprocess.run([shutil.which("chroot") or "/usr/sbin/chroot", root, f"/usr/bin/{program}", "--version"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"PATH": "/usr/bin"})
        if done.returncode != 0 and any(library in done.stdout for library in OF_THE_NODE):
            continue  # starts only on a node with the driver
        if done.returncode != 0:
            sys.exit(f"assemble_root: {program} --version fails in {root}: {done.stdout.strip()[-2000:]}")
        if program.startswith("freshet") and version not in done.stdout.split():
            sys.exit(f"assemble_root: {program} is \"{done.stdout.strip()}\", but the image has version {version}: "
                     f"pass --build-arg VERSION={done.stdout.split()[-1]}")


def tree_bytes(root):
    return sum(os.lstat(os.path.join(folder, name)).st_size
               for folder, _, names in os.walk(root) for name in names)


def assemble(image, root, options):
    make_skeleton(root)
    programs = PROGRAMS[image]
    missing = [program for program in programs if not os.path.exists(os.path.join(options.bin, program))]
    if missing:
        sys.exit(f"assemble_root: not in {options.bin}: {', '.join(missing)}")
    for program in programs:
        strip(install(root, os.path.join(options.bin, program), f"usr/bin/{program}"))
    for library in PROGRAM_LIBRARIES.get(image, []):
        install(root, os.path.join(options.bin, library), f"usr/bin/{library}")
    system = []
    for program in SYSTEM_PROGRAMS[image]:
        source = shutil.which(program)
        if source is None:
            sys.exit(f"assemble_root: {program} is not installed")
        install(root, source, f"usr/bin/{program}")
        system.append(source)
    wheels = []
    if image == "compute":
        for library in TORCH_CPU:
            strip(install(root, os.path.join(options.torch, library), f"{TORCH_LIBRARIES}/{os.path.basename(library)}"))
        wheels = wheel_entries(root, options.torch)
    # The programs have the build machine's LibTorch folder as RPATH.
    for program in programs:
        path = os.path.join(root, "usr/bin", program)
        if run("patchelf", "--print-rpath", path).strip():
            run("patchelf", "--force-rpath", "--set-rpath", f"/{TORCH_LIBRARIES}", path)
    for example in sorted(glob.glob("examples/*.yaml")):
        install(root, example, f"usr/share/freshet/examples/{os.path.basename(example)}", 0o644)
    taken = take_needed_libraries(root)
    write_bill(root, image, options.version, debian_entries(root, taken + system) + wheels + crate_entries(root))
    check_programs(root, programs + SYSTEM_PROGRAMS[image], options.version)


def download_cuda(tree):
    """Downloads the pinned CUDA wheels and unpacks them into `tree`."""
    wheels = os.path.join(tree, "wheels")
    platforms = [flag for glibc in range(35, 4, -1) for flag in ("--platform", f"manylinux_2_{glibc}_x86_64")]
    run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--python-version", "311", *platforms, "--platform", "manylinux2014_x86_64",
        "--platform", "manylinux2010_x86_64", "--require-hashes", "-r", "cmake/torch_cuda_wheels.txt", "-d", wheels)
    for wheel in glob.glob(os.path.join(wheels, "*.whl")):
        run(sys.executable, "-m", "zipfile", "-e", wheel, tree)
    shutil.rmtree(wheels)


def matches(name, patterns):
    return any(re.fullmatch(glob_to_regex(pattern), name) for pattern in patterns)


def glob_to_regex(pattern):
    return re.escape(pattern).replace(r"\*", ".*")


def needed_by(path):
    return [line.split("[")[1].rstrip("]") for line in run("readelf", "-d", path).splitlines() if "(NEEDED)" in line]


def assemble_cuda(root, options):
    shutil.copytree(options.from_root, root, symlinks=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(root)) as tree:
        download_cuda(tree)
        found = {os.path.basename(path): path for folder in CUDA_FOLDERS
                 for path in glob.glob(os.path.join(tree, folder, "*.so*"))}
        wanted = []
        for library in TORCH_CUDA:
            wanted.append(strip_into(root, os.path.join(options.torch, library)))
        wanted += [copy_into(root, path) for name, path in sorted(found.items()) if matches(name, OPENED_BY_NAME)]
        while wanted:  # and their dependencies among the wheels
            for name in needed_by(wanted.pop()):
                target = os.path.join(root, TORCH_LIBRARIES, name)
                if name in found and not os.path.exists(target) and not matches(name, LEFT_OUT):
                    wanted.append(copy_into(root, found[name]))
        wheels = wheel_entries(root, tree)
    kernels = os.path.join(options.bin, KERNELS)
    if not os.path.exists(kernels):
        sys.exit(f"assemble_root: {kernels} is missing: run ./dev cuda")
    strip_into(root, kernels)
    for path in elf_files(root):
        if "/usr/bin/" in path and "libtorch_cpu.so" in needed_by(path):
            run("patchelf", "--add-needed", "libtorch_cuda.so", path)
        if TORCH_LIBRARIES in path:
            run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", path)
    taken = take_needed_libraries(root)
    entries = debian_entries(root, [os.path.join("/", os.path.relpath(path, root)) for path in
                                    glob.glob(os.path.join(root, LIBRARIES, "*"))] + taken)
    write_bill(root, "compute-cuda", options.version, entries + wheel_entries(root, options.torch) + wheels + crate_entries(root))
    check_programs(root, PROGRAMS["compute"], options.version)


def copy_into(root, path):
    return install(root, path, f"{TORCH_LIBRARIES}/{os.path.basename(path)}")


def strip_into(root, path):
    copy = copy_into(root, path)
    strip(copy)
    return copy


def main():
    parser = argparse.ArgumentParser(description="Assembles the root file system of an image.")
    parser.add_argument("image", choices=["control", "compute", "compute-cuda", "sandbox"])
    parser.add_argument("root", help="folder to create; must not exist")
    parser.add_argument("--version", required=True, help="version that the programs must report")
    parser.add_argument("--bin", default="build/bin", help="folder with the compiled programs")
    parser.add_argument("--torch", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
                                                        "freshet/libtorch-2.11.0"), help="unpacked LibTorch")
    parser.add_argument("--from-root", help="compute-cuda: the finished tree of compute")
    options = parser.parse_args()
    root = os.path.abspath(options.root)
    if os.path.exists(root):
        sys.exit(f"assemble_root: {root} already exists")
    os.makedirs(os.path.dirname(root), exist_ok=True)
    if options.image == "compute-cuda":
        if not options.from_root:
            sys.exit("assemble_root: compute-cuda needs --from-root with the tree of compute")
        assemble_cuda(root, options)
    else:
        assemble(options.image, root, options)
    print(f"{options.image}: {tree_bytes(root) / 1e6:.1f} MB in {root}")


if __name__ == "__main__":
    main()
