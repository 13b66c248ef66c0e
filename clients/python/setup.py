"""Generates the gRPC stubs from proto/ while the package is built."""

import pathlib
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent


def proto_root() -> pathlib.Path:
    """The folder of the protos: in the repository, or the copy in a source distribution."""
    for folder in (HERE / "proto", HERE.parent.parent / "proto"):
        if (folder / "freshet").is_dir():
            return folder
    raise FileNotFoundError("no proto/freshet: build from a checkout of Freshet")


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        sys.path.insert(0, str(HERE))
        from generate import generate

        generate(proto_root(), pathlib.Path(self.build_lib))


class SourcesWithProtos(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        shutil.copytree(proto_root() / "freshet", pathlib.Path(base_dir) / "proto" / "freshet")
        shutil.copy(HERE / "generate.py", base_dir)


setup(cmdclass={"build_py": BuildWithStubs, "sdist": SourcesWithProtos})
