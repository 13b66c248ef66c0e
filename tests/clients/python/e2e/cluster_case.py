"""A real cluster for the tests of a class."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import freshet

REPOSITORY = pathlib.Path(os.environ["FRESHET_REPOSITORY"])
PROGRAM = pathlib.Path(os.environ["FRESHET_PROGRAMS"]) / "freshet"
# Far longer than any test takes on two busy cores.
SECONDS = 300


class ClusterCase(unittest.TestCase):
    """`freshet cluster up` before the first test, `down` after the last one."""

    # Flags of `cluster up`.
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        # Where the client in this process finds the cluster's token.
        os.environ["XDG_STATE_HOME"] = folder.name
        site = str(pathlib.Path(freshet.__file__).parent.parent)
        cls.environment = {
            **os.environ,
            "XDG_CONFIG_HOME": folder.name,
            "FRESHET_PYTHON": sys.executable,
            "PYTHONPATH": site,
        }
        up = cls.run_freshet("cluster", "up", "--port", "0", *cls.FLAGS)
        cls.addClassCleanup(lambda: cls.run_freshet("cluster", "down"))
        cls.server = re.search(r"export FRESHET_SERVER=([^;]+);", up.stderr)[1]
        cls.environment["FRESHET_SERVER"] = cls.server
        cls.client = freshet.Client(cls.server)
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def run_freshet(cls, *arguments):
        """Runs `freshet` and asserts that it succeeds."""
        result = subprocess.run(
            [PROGRAM, *arguments], env=cls.environment, capture_output=True, text=True, timeout=SECONDS
        )
        assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"
        return result
