#!/usr/bin/env python3
"""Installs the Python client like a user and runs e2e/*_test.py with it against the built programs.

    run_e2e.py REPOSITORY BIN_DIR

Needs grpcio, grpcio-tools, PyYAML, setuptools and wheel. Exits with 77 (skipped, for ctest) if they are
missing. The variable FRESHET_TEST_PYTHON selects another interpreter.
"""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
NEEDED = {
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "yaml": "PyYAML",
    "setuptools": "setuptools",
    "wheel": "wheel",
}


def install(repository, folder):
    """Runs `pip install ./clients/python` on a copy, to keep build folders out of the sources."""
    copy = folder / "repository"
    for part in ("clients/python", "proto/freshet"):
        shutil.copytree(repository / part, copy / part, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    site = folder / "site"
    # All build and runtime dependencies are installed, so pip needs no network.
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
         "--no-deps", "--no-build-isolation", "--target", str(site), str(copy / "clients" / "python")],
        check=True,
    )
    return site


def main(repository, programs):
    other = os.environ.pop("FRESHET_TEST_PYTHON", "")
    if other:
        os.execv(other, [other, *sys.argv])
    missing = [package for module, package in NEEDED.items() if not importlib.util.find_spec(module)]
    if missing:
        print(f"skipped: {sys.executable} lacks {', '.join(missing)}; pip install them")
        return SKIPPED
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        site = install(repository, pathlib.Path(folder))
        sys.path[:0] = [str(site)]
        import freshet

        assert pathlib.Path(freshet.__file__).is_relative_to(site), freshet.__file__
        os.environ["FRESHET_REPOSITORY"] = str(repository)
        os.environ["FRESHET_PROGRAMS"] = str(programs)
        tests = unittest.defaultTestLoader.discover(
            str(pathlib.Path(__file__).resolve().parent / "e2e"), "*_test.py"
        )
        return 0 if unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*(pathlib.Path(argument).resolve() for argument in sys.argv[1:])))
