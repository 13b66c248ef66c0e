#!/usr/bin/env python3
"""Runs the tests of the Python client, *_test.py in this folder, with stubs generated from proto/.

    run_tests.py REPOSITORY

Needs grpcio, grpcio-tools and PyYAML. Exits with 77 (skipped, for ctest) if they are missing. If
tensorboard, wandb, mlflow or pyarrow is missing, only its tests are skipped. The variable FRESHET_TEST_PYTHON
selects another interpreter.
"""
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

SKIPPED = 77
NEEDED = {"grpc": "grpcio", "grpc_tools": "grpcio-tools", "yaml": "PyYAML"}


def main(repository):
    other = os.environ.pop("FRESHET_TEST_PYTHON", "")
    if other:
        os.execv(other, [other, *sys.argv])
    missing = [package for module, package in NEEDED.items() if not importlib.util.find_spec(module)]
    if missing:
        print(f"skipped: {sys.executable} lacks {', '.join(missing)}; pip install them")
        return SKIPPED
    client = repository / "clients" / "python"
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder)
        shutil.copytree(client / "freshet", package / "freshet", ignore=_ignore)
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(client)]
        from generate import generate

        generate(repository / "proto", package)
        sys.path[:0] = [str(package)]
        here = pathlib.Path(__file__).resolve().parent
        tests = unittest.defaultTestLoader.discover(str(here), "*_test.py")
        return 0 if unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful() else 1


def _ignore(folder, names):
    """Ignores stubs generated beside the sources."""
    return [name for name in names if (pathlib.Path(folder) / name).is_dir()]


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
