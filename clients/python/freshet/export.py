"""Exports the metrics of a run folder or of a cluster's job to TensorBoard, W&B or MLflow.

    python3 -m freshet.export tensorboard|wandb|mlflow RUN|JOB [DIR] [--follow] [--server HOST:PORT ...]

`freshet export` runs this module, with the same arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from freshet import command, errors
from freshet.client import Client
from freshet.connection import is_locked
from freshet.metrics import History, MetricsFile, Point, point_of
from freshet.trackers import TRACKERS, Tracker

# Poll interval for a run folder that is still written.
_POLL_SECONDS = 2.0


class RunFolder:
    """The metrics in a run folder of `freshet local`."""

    def __init__(self, folder: str, wait: Callable[[float], None] = time.sleep):
        self.name = os.fsencode(os.path.basename(os.path.abspath(folder))).decode("utf-8", "replace")
        self.tensorboard_folder = os.path.join(folder, "tensorboard")
        self._folder = pathlib.Path(folder)
        self._file = MetricsFile(self._folder / "metrics.jsonl")
        self._wait = wait

    def batches(self, follow: bool) -> Iterator[list[Point]]:
        """Yields all current points; with `follow` also later ones, until the run's process ends.

        Raises FileNotFoundError, and ValueError with file and line of a malformed row.
        """
        while True:
            # Checked before reading, so that the last rows of the run are not missed.
            running = follow and self._is_running()
            yield self._read(missing_ok=running)
            if not running:
                return
            self._wait(_POLL_SECONDS)

    def start(self, points: Iterable[Point]) -> float:
        """Unix time of the start of the run: the file's mtime less the seconds in its last row."""
        return self._file.modified() - max((point.seconds for point in points), default=0.0)

    def state(self) -> str:
        return ""

    def _read(self, missing_ok: bool) -> list[Point]:
        try:
            return self._file.read()
        except FileNotFoundError:
            if not missing_ok:
                raise
            return []

    def _is_running(self) -> bool:
        """Whether a process holds the lock of the run (local/run_folder.h)."""
        try:
            return is_locked(self._folder / "job.yaml")
        except FileNotFoundError:
            return False


class ClusterJob:
    """The metrics of a cluster's job. Raises NotFound if there is no such job."""

    def __init__(self, client: Client, id: str):
        self.name = client.get(id).id
        self.tensorboard_folder = os.path.join("tensorboard", self.name)
        self._client = client

    def batches(self, follow: bool) -> Iterator[list[Point]]:
        """Yields all current points; with `follow` also later ones, until the job ends."""
        rows = self._client.metrics(self.name)
        yield self._points(rows)
        if follow:
            events = self._client.watch(self.name)  # from the first one
            later = (event.data for event in events if event.kind in ("step", "eval"))
            for row in itertools.islice(later, len(rows), None):
                yield self._points([row])

    def start(self, points: Iterable[Point]) -> float:
        """Unix time of the start of the job."""
        message = self._client.get(self.name).message
        begin = message.started if message.HasField("started") else message.created
        return begin.seconds + begin.nanos / 1e9

    def state(self) -> str:
        return self._client.get(self.name).state

    def _points(self, rows: list[dict]) -> list[Point]:
        points = []
        for row in rows:
            try:
                points.append(point_of(row))
            except ValueError as fault:
                command.say(f"{self.name}: skipped a row: {fault}")
        return [point for point in points if point is not None]


def mirror(
    source: RunFolder | ClusterJob, follow: bool, tracker: Callable[[float], Tracker]
) -> Tracker:
    """Writes a source into tracker(START). Returns the closed tracker.

    Trackers cannot delete points. When a resume supersedes some, a new tracker gets all that survive.
    """
    history = History()
    opened = None
    try:
        for points in source.batches(follow):
            intact = all([history.add(point) for point in points])
            if opened is not None and not intact:
                opened.close("CANCELLED")
                opened = None
            if opened is not None:
                opened.write([point for point in points if point in history])
            elif points:
                opened = tracker(source.start(history))
                opened.write(history)
        if opened is None:
            opened = tracker(source.start([]))
        opened.close(source.state())
        return opened
    except BaseException:
        if opened is not None:
            with contextlib.suppress(Exception):  # report the first fault
                opened.close("CANCELLED")
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _export(options)
    except KeyboardInterrupt:
        return command.INTERRUPTED
    except ModuleNotFoundError as fault:
        return command.missing_package(fault, TRACKERS[options.tracker].PACKAGES)
    except errors.ConnectionLost as fault:
        named = options.server or os.environ.get("FRESHET_SERVER")
        if not named and not fault.reason:
            return command.fail(f"{options.run}: no such run folder, and {fault}", command.CONTENT)
        return command.fail(fault, command.NO_CONNECTION)
    except errors.TimedOut as fault:
        return command.fail(fault, command.TIMEOUT)
    except errors.Refused as fault:
        return command.fail(fault, command.REFUSED)
    except errors.FreshetError as fault:
        return command.fail(fault, command.INTERNAL)
    except (OSError, ValueError) as fault:
        return command.fail(fault, command.CONTENT)
    except Exception as fault:
        if type(fault).__module__.partition(".")[0] != options.tracker:
            raise
        return command.fail(f"{options.tracker}: {fault}", command.INTERNAL)


def _export(options: argparse.Namespace) -> int:
    importlib.import_module(options.tracker)  # fail at once if it is missing, not after hours
    with contextlib.ExitStack() as stack:
        # The same rule as in `freshet`.
        if "/" in options.run or os.path.exists(options.run):
            source = RunFolder(options.run)
        else:
            try:
                client = Client(
                    options.server,
                    ca=options.ca,
                    cert=options.cert,
                    key=options.key,
                    token_file=options.token_file,
                )
            except ValueError as fault:
                return command.fail(fault, command.COMMAND_LINE)
            source = ClusterJob(stack.enter_context(client), options.run)
        folder = options.dir or source.tensorboard_folder
        make = TRACKERS[options.tracker]
        written = mirror(source, options.follow, lambda start: make(source.name, start, folder))
    print(written.place)
    if written.next:
        print(f"next: {written.next}", file=sys.stderr)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="freshet export")
    parser.add_argument("tracker", choices=TRACKERS)
    parser.add_argument("run", metavar="RUN", help="run folder, or id of a cluster's job")
    parser.add_argument("dir", metavar="DIR", nargs="?", help="folder for TensorBoard's event file")
    parser.add_argument("--follow", action="store_true", help="continue until the run or job ends")
    parser.add_argument("--server", help="HOST:PORT of the controller, or several separated by commas")
    for name in ("ca", "cert", "key", "token-file"):
        parser.add_argument(f"--{name}", help="file, as in freshet --help")
    options = parser.parse_intermixed_args(arguments)
    if options.dir and options.tracker != "tensorboard":
        parser.error(f"DIR: {options.tracker} takes none")
    return options


if __name__ == "__main__":
    sys.exit(main())
