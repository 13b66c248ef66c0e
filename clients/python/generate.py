"""Generates the Python stubs of Freshet's services in a folder.

usage: python3 generate.py [PROTO_FOLDER [OUT_FOLDER]]

By default reads the repository's proto/ and writes into this folder, so that the client works
without installation. Needs grpcio-tools.
"""

import pathlib
import sys

# The protos that the client uses. Services also get a _pb2_grpc module.
PROTOS = (
    "freshet/job/v1/key_options.proto",
    "freshet/job/v1/job_spec.proto",
    "freshet/job/v1/job_service.proto",
    "freshet/trajectory/v1/trajectory.proto",
    "freshet/reward/v1/reward_service.proto",
    "freshet/env/v1/env_service.proto",
)


def generate(protos: pathlib.Path, out: pathlib.Path) -> None:
    import grpc_tools
    from grpc_tools import protoc

    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    out.mkdir(parents=True, exist_ok=True)
    code = protoc.main(
        [
            "protoc",
            f"-I{protos}",
            f"-I{well_known}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            *PROTOS,
        ]
    )
    if code != 0:
        raise RuntimeError(f"protoc failed with code {code}")
    for proto in PROTOS:
        folder = (out / proto).parent
        while folder != out / "freshet":
            (folder / "__init__.py").touch()
            folder = folder.parent


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    arguments = [pathlib.Path(argument) for argument in sys.argv[1:]]
    generate(*(arguments + [here.parent.parent / "proto", here][len(arguments) :]))
