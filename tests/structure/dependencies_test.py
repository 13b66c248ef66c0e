"""Checks the #include lines of the production code against dependencies.txt."""

import pathlib
import re
import sys
import tempfile

NOT_PRODUCTION = {"tests", "bench", "cmake", "proto", "build"}
ANY = re.compile(r'^#include (?:"([^"]+)"|(<[^>]+>))', re.M)


def read_table(text):
    """Returns (allowed folders by folder, folders by library prefix, problems)."""
    allowed, libraries, problems = {}, {}, []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("<"):
            prefix, *folders = line.split()
            libraries[prefix[1:]] = set(folders)
            continue
        folder, _, names = line.partition(":")
        for name in names.split():
            if name not in allowed:
                problems.append(f"line {number}: {folder} may not name {name}, which is not above it")
        allowed[folder] = set(names.split())
    return allowed, libraries, problems


def sources(root):
    for top in sorted(root.iterdir()):
        if top.name.startswith((".", "build")) or top.name in NOT_PRODUCTION:
            continue  # a compiler may change these folders during the test
        for path in sorted(top.rglob("*")):
            if path.suffix in (".cc", ".h"):
                yield path.relative_to(root)


def check(root, table):
    allowed, libraries, problems = read_table(table)
    files = list(sources(root))
    folders = {str(file.parent) for file in files}
    problems += [f"{folder} is not in the table" for folder in sorted(folders - set(allowed))]
    problems += [f"{folder} is in the table, but has no sources" for folder in sorted(set(allowed) - folders)]
    used, used_libraries = {folder: set() for folder in folders}, {name: set() for name in libraries}
    for file in files:
        folder = str(file.parent)
        text = (root / file).read_text()
        for own, system in ANY.findall(text):
            target = str(pathlib.PurePosixPath(own).parent) if own else ""
            if target in folders and target != folder:
                used[folder].add(target)
                if target not in allowed.get(folder, ()):
                    problems.append(f"{file} includes {own}: {folder} may not use {target}")
            name = own or system[1:-1]
            for prefix, users in libraries.items():
                if name.startswith(prefix):
                    used_libraries[prefix].add(folder)
                    if folder not in users:
                        problems.append(f"{file} includes {name}: {folder} may not use {prefix}")
    for folder in sorted(folders & set(allowed)):
        problems += [f"{folder} does not use {name}: remove it from the table"
                     for name in sorted(allowed[folder] - used[folder])]
    for prefix, users in libraries.items():
        problems += [f"{folder} does not use {prefix}: remove it from the table"
                     for folder in sorted(users - used_libraries[prefix])]
    return problems


def self_test():
    """The check finds each kind of problem."""
    cases = {
        "low:\nhigh: low\n": [],
        "low:\nhigh:\n": ["high/b.h includes low/a.h: high may not use low"],
        "high: low\nlow:\n": ["line 1: high may not name low, which is not above it"],
        "low:\nhigh: low\n<zlib low\n": ["high/b.h includes zlib.h: high may not use zlib",
                                         "low does not use zlib: remove it from the table"],
        "none:\nlow:\nhigh: none low\n": ["none is in the table, but has no sources",
                                          "high does not use none: remove it from the table"],
        "low:\n": ["high is not in the table", "high/b.h includes low/a.h: high may not use low"],
    }
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "low").mkdir()
        (root / "high").mkdir()
        (root / "low/a.h").write_text("")
        (root / "high/b.h").write_text('#include <zlib.h>\n#include "low/a.h"\n')
        for table, want in cases.items():
            got = check(root, table)
            if got != want:
                sys.exit(f"self-test: {table!r} gives {got}, want {want}")


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    problems = check(root, (pathlib.Path(__file__).parent / "dependencies.txt").read_text())
    for problem in problems:
        print(f"dependencies: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
