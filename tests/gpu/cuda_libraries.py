#!/usr/bin/env python3
"""Prints the folders of PyTorch's CUDA libraries, for LD_LIBRARY_PATH. Fails where PyTorch 2.11.0 is not installed."""
import importlib.util
import pathlib
import sys

VERSION = "2.11.0"


def main():
    found = importlib.util.find_spec("torch")
    if found is None:
        return 1
    torch = pathlib.Path(found.origin).parent
    version = (torch / "version.py").read_text(encoding="utf-8")
    if f"'{VERSION}" not in version or not (torch / "lib/libtorch_cuda.so").exists():
        return 1
    folders = [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
    print(":".join(map(str, folders)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
