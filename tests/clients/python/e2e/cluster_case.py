"""A real cluster for the tests of a class."""

import os
import pathlib
import sys
import tempfile
import unittest

import freshet

REPOSITORY = pathlib.Path(os.environ["FRESHET_REPOSITORY"])
sys.path.insert(0, str(REPOSITORY / "tests" / "testing"))
from launcher import SupervisedCluster  # noqa: E402

PROGRAM = pathlib.Path(os.environ["FRESHET_PROGRAMS"]) / "freshet"
# Far longer than any test takes on two busy cores.
SECONDS = 300


class ClusterCase(unittest.TestCase):
    """A cluster from before the first test until after the last one."""

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
        environment = {"FRESHET_PYTHON": sys.executable, "PYTHONPATH": site}
        cls.cluster = SupervisedCluster(PROGRAM, folder.name, *cls.FLAGS, environment=environment)
        cls.addClassCleanup(cls.cluster.down)
        cls.server = cls.cluster.server
        cls.client = freshet.Client(cls.server)
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def run_freshet(cls, *arguments):
        """Runs `freshet`, which must succeed, and returns its stdout."""
        return cls.cluster.freshet(*arguments, timeout=SECONDS)
