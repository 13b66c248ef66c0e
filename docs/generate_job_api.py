#!/usr/bin/env python3
"""Writes docs/job-api.md from the comments of proto/freshet/job/v1/job_service.proto.

usage: docs/generate_job_api.py [--check]     --check: changes nothing, exits 1 when the file is not current
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto/freshet/job/v1/job_service.proto"
OUT = ROOT / "docs/job-api.md"

HEAD = """# The job API: `{package}.{service}`

<!-- Written by docs/generate_job_api.py from {proto}; do not edit. -->

{about}

Keys of a job's spec: [job.md](job.md). With `--reflection` the controller serves gRPC reflection.

Reasons (`ErrorInfo.reason`): `INVALID_JOB` with one violation per fault of a job, `INVALID_FIELD`, `NOT_FOUND`,
`ALREADY_EXISTS`, `WRONG_STATE`, `OUT_OF_RANGE`, `FULL` and `TRY_AGAIN` with a retry delay, `NOT_LEADER` with metadata
`leader`, `LEADER_AWAY`, `ERROR`.
"""


class Item:
    """A message, enum, service, rpc, field or value, with what its comments say."""

    def __init__(self, kind, name, comment, **facts):
        self.kind, self.name, self.comment, self.children = kind, name, comment, []
        self.__dict__.update(facts)


FIELD = re.compile(
    r"(?P<label>optional |repeated )?(?P<type>map<[^>]+>|[\w.]+) (?P<name>\w+) = (?P<number>\d+);\s*(?://\s*(?P<note>.*))?$")
VALUE = re.compile(r"(?P<name>[A-Z_0-9]+) = (?P<number>\d+);\s*(?://\s*(?P<note>.*))?$")
RPC = re.compile(r"rpc (\w+)\((stream )?([\w.]+)\) returns \((stream )?([\w.]+)\);")


def parse(text):
    """Top-level items in order, and the package."""
    items, stack, comment, last, package = [], [], [], None, ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("//"):
            note = line[2:].removeprefix(" ")
            # The rest of a comment behind a field stands in the same column.
            if last is not None and raw.index("//") == last.column:
                last.comment += " " + note
            else:
                comment.append(note)
                last = None
            continue
        last = None
        if not line:
            comment = []
            continue
        where = stack[-1].children if stack else items
        if match := re.match(r"package ([\w.]+);", line):
            package = match[1]
        elif match := re.match(r"(message|enum|service|oneof) (\w+) \{(\})?$", line):
            item = Item(match[1], match[2], "\n".join(comment))
            where.append(item)
            if not match[3]:
                stack.append(item)
        elif line == "}":
            stack.pop()
        elif match := RPC.match(line):
            where.append(Item("rpc", match[1], "\n".join(comment), takes=match[3], gives=match[5], stream=bool(match[4])))
        elif stack and stack[-1].kind == "enum" and (match := VALUE.match(line)):
            last = Item("value", match["name"], " ".join(comment + [match["note"] or ""]))
            last.column = raw.index("//") if match["note"] else -1
            where.append(last)
        elif stack and (match := FIELD.match(line)):
            last = Item("field", match["name"], " ".join(comment + [match["note"] or ""]), label=match["label"] or "",
                        type=match["type"], oneof=stack[-1].kind == "oneof")
            last.column = raw.index("//") if match["note"] else -1
            (stack[-2] if last.oneof else stack[-1]).children.append(last)
        comment = []
    return items, package


def paragraphs(comment):
    parts = [part.replace("\n", " ") for part in comment.split("\n\n")]
    return "\n\n".join(textwrap.fill(part, 120, break_on_hyphens=False, break_long_words=False) for part in parts)


def line(text):
    return text.replace("\n", " ").strip()


def type_name(field, known):
    name = field.type.split(".")[-1]
    if field.type.startswith("map<"):
        return "map of " + field.type[4:-1].split(",")[0] + " to " + field.type[4:-1].split(",")[1].strip()
    text = {"Timestamp": "time", "JobSpec": "[JobSpec](job.md)"}.get(name, name)
    if name in known:
        text = f"[{name}](#{name.lower()})"
    return ("list of " if field.label == "repeated " else "optional " if field.label else "") + text


def fields_list(message, known):
    fields = [child for child in message.children if child.kind == "field"]
    if not fields:
        return "No fields.\n"
    lines = []
    for field in fields:
        one = ", one of these" if field.oneof else ""
        about = f": {line(field.comment)}" if field.comment.strip() else ""
        lines.append(f"- `{field.name}` ({type_name(field, known)}{one}){about}")
    return "\n".join(lines) + "\n"


def render(text):
    items, package = parse(text)
    service = next(item for item in items if item.kind == "service")
    messages = {item.name: item for item in items if item.kind == "message"}
    calls = service.children
    private = {name for call in calls for name in (call.takes, call.gives) if name.endswith(("Request", "Reply"))}
    known = {name for name in messages if name not in private} | {item.name for item in items if item.kind == "enum"}
    out = [HEAD.format(package=package, service=service.name, proto=PROTO.relative_to(ROOT), about=paragraphs(service.comment))]
    out.append("## Calls")
    for call in calls:
        gives = f"[{call.gives}](#{call.gives.lower()})" if call.gives in known else f"`{call.gives}`"
        out.append(f"\n### {call.name}\n\n`{call.takes}` → {'stream of ' if call.stream else ''}{gives}\n")
        out.append(paragraphs(call.comment) + "\n")
        for name in (call.takes, call.gives):
            message = messages[name]
            if name not in private or not message.children:
                continue
            about = f": {line(message.comment)}" if message.comment else ""
            title = "" if not about and name == call.takes else f"`{name}`{about}\n\n"
            out.append(title + fields_list(message, known))
    out.append("## Messages")
    for item in items:
        if item.kind == "message" and item.name in known:
            out.append(f"\n### {item.name}\n")
            if item.comment:
                out.append(paragraphs(item.comment) + "\n")
            out.append(fields_list(item, known).rstrip())
        elif item.kind == "enum":
            out.append(f"\n### {item.name}\n")
            out += [f"- `{value.name}`: {line(value.comment)}" for value in item.children if not value.name.endswith("_UNSPECIFIED")]
    return re.sub("\n{3,}", "\n\n", "\n".join(out) + "\n")


def main():
    written = render(PROTO.read_text())
    if sys.argv[1:] == ["--check"]:
        if OUT.exists() and OUT.read_text() == written:
            return 0
        print(f"{OUT.relative_to(ROOT)} is not current; run docs/generate_job_api.py", file=sys.stderr)
        return 1
    OUT.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
