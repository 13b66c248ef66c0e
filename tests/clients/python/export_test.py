"""`python3 -m freshet.export`: run folders, jobs, resumes while following, exit codes."""

import contextlib
import fcntl
import io
import os
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

import freshet
import grpc
from freshet import export
from freshet.job.v1 import job_service_pb2 as pb
from freshet.trackers import TRACKERS
from recorded_service import Fault, RecordedService, job, state, step


class RecordingTracker:
    """A tracker that records the points."""

    opened = []

    def __init__(self, name="", start=0.0, folder=""):
        self.name, self.start, self.folder = name, start, folder
        self.steps, self.state = [], None
        self.place, self.next = "here", ""
        RecordingTracker.opened.append(self)

    def write(self, points):
        self.steps += [(point.step, point.lineage) for point in points]

    def close(self, state):
        self.state = state


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        RecordingTracker.opened = []

    def write(self, *rows, name="run/metrics.jsonl"):
        pathlib.Path(name).parent.mkdir(exist_ok=True)
        with open(name, "a", encoding="utf-8") as file:
            file.writelines(row + "\n" for row in rows)

    def mirror(self, source, follow=True):
        export.mirror(source, follow, lambda start: RecordingTracker(source.name, start))
        return RecordingTracker.opened


def row(number, lineage=0):
    return f'{{"step": {number}, "lineage": {lineage}, "wall_seconds": {10 * number}}}'


class RunFolderTest(Case):
    def follow(self, *turns):
        """Follows a locked run, calls one of `turns` per poll, then unlocks it. Returns what was written."""
        self.write("name: a", name="run/job.yaml")
        held = open("run/job.yaml", "rb")
        fcntl.flock(held, fcntl.LOCK_EX)
        waits = []

        def wait(seconds):
            waits.append(seconds)
            if len(waits) <= len(turns):
                turns[len(waits) - 1]()
            else:
                held.close()

        with held:
            written = self.mirror(export.RunFolder("run", wait))
        self.assertEqual(waits, [2.0] * (len(turns) + 1))
        return written

    def test_a_run_that_has_ended_is_written_once(self):
        self.write(row(1), row(2))
        os.utime("run/metrics.jsonl", (1020.0, 1020.0))
        self.write("name: a", name="run/job.yaml")
        for follow in (False, True):
            (written,) = self.mirror(export.RunFolder("run/"), follow)
            self.assertEqual((written.name, written.start), ("run", 1000.0))
            self.assertEqual((written.steps, written.state), ([(1, 0), (2, 0)], ""))
            RecordingTracker.opened = []

    def test_follow_goes_on_until_the_run_is_let_go(self):
        (written,) = self.follow(
            lambda: None,  # the model is still loading, so there is no file
            lambda: self.write(row(1)),
            lambda: None,
            lambda: self.write(row(2), row(3)),
        )
        self.assertEqual((written.steps, written.state), ([(1, 0), (2, 0), (3, 0)], ""))

    def test_a_resume_that_supersedes_rows_begins_anew(self):
        before, after = self.follow(
            lambda: self.write(row(1), row(2), row(3)),
            lambda: self.write(row(2, lineage=1)),
            lambda: self.write(row(3, lineage=1)),
        )
        self.assertEqual((before.steps, before.state), ([(1, 0), (2, 0), (3, 0)], "CANCELLED"))
        self.assertEqual((after.steps, after.state), ([(1, 0), (2, 1), (3, 1)], ""))

    def test_resumes_before_are_never_written(self):
        self.write(row(1), row(2), row(3), row(2, lineage=1))
        (written,) = self.follow(lambda: self.write(row(3, lineage=1)))
        self.assertEqual(written.steps, [(1, 0), (2, 1), (3, 1)])

    def test_a_fault_closes_what_was_opened(self):
        with self.assertRaisesRegex(ValueError, "metrics.jsonl:2"):
            self.follow(lambda: self.write(row(1)), lambda: self.write("{"))
        (written,) = RecordingTracker.opened
        self.assertEqual((written.steps, written.state), ([(1, 0)], "CANCELLED"))


class ClusterJobTest(Case):
    def setUp(self):
        super().setUp()
        self.service = RecordedService()
        self.addCleanup(self.service.stop)
        self.client = freshet.Client(self.service.address, timeout=10.0, patience=10.0)
        self.addCleanup(self.client.close)

    def job(self, value, **fields):
        message = job(state=value, recent_events=[step(2)], **fields)
        message.started.FromMilliseconds(1_000_500)
        return message

    def test_a_job_is_written_up_to_now(self):
        self.service.answer("Get", self.job(pb.JOB_STATE_RUNNING))
        self.service.answer("Watch", [step(1), step(2), step(3)])
        (written,) = self.mirror(export.ClusterJob(self.client, "a"), follow=False)
        self.assertEqual((written.name, written.start), ("a", 1000.5))
        self.assertEqual((written.steps, written.state), ([(1, 0), (2, 0)], "RUNNING"))

    def test_follow_goes_on_until_the_job_ends(self):
        # Answers to: the job, its newest event, its start, whether it has ended, and its state.
        self.service.answer("Get", *[self.job(pb.JOB_STATE_RUNNING)] * 3, self.job(pb.JOB_STATE_FAILED))
        ended = state("c9", pb.JOB_STATE_FAILED)
        fork = pb.Event(cursor="c4", metrics_json='{"step": 3, "lineage": 1}')
        self.service.answer(
            "Watch", [step(1), step(2)], [step(1), step(2), step(3), step(4), fork, ended]
        )
        before, after = self.mirror(export.ClusterJob(self.client, "a"))
        self.assertEqual((before.steps, before.state), ([(n, 0) for n in (1, 2, 3, 4)], "CANCELLED"))
        self.assertEqual((after.steps, after.state), ([(1, 0), (2, 0), (3, 1)], "FAILED"))

    def test_a_row_that_cannot_be_read_is_left_out_and_told(self):
        self.service.answer("Get", self.job(pb.JOB_STATE_SUCCEEDED))
        bad = pb.Event(cursor="c1", metrics_json='{"step": "1"}')
        self.service.answer("Watch", [bad, step(2)])
        with contextlib.redirect_stderr(io.StringIO()) as told:
            (written,) = self.mirror(export.ClusterJob(self.client, "a"), follow=False)
        self.assertEqual(written.steps, [(2, 0)])
        self.assertIn("a: skipped a row: step: ", told.getvalue())


class CommandTest(Case):
    """main() with a fake package `wandb`."""

    def setUp(self):
        super().setUp()
        package = types.ModuleType("wandb")
        package.Fault = type("Fault", (Exception,), {"__module__": "wandb.errors"})
        self.enterContext_(mock.patch.dict(sys.modules, {"wandb": package}))
        self.enterContext_(mock.patch.dict(TRACKERS, {"wandb": RecordingTracker}))
        self.enterContext_(mock.patch.dict(os.environ, {"FRESHET_SERVER": "", "XDG_STATE_HOME": os.getcwd()}))
        self.enterContext_(mock.patch("signal.signal"))
        self.package = package

    def enterContext_(self, context):  # in unittest only since Python 3.11
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = export.main(arguments)
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), err.getvalue()

    def assertExits(self, expected, text, *arguments):
        code, _, err = self.run_main(*arguments)
        self.assertEqual(code, expected, err)
        self.assertIn(text, err)
        self.assertNotIn("Traceback", err)

    def test_prints_what_is_written(self):
        self.write(row(1))
        self.assertEqual(self.run_main("wandb", "run", "--follow"), (0, "here\n", ""))
        (written,) = RecordingTracker.opened
        self.assertEqual((written.name, written.folder), ("run", "run/tensorboard"))
        with mock.patch.dict(TRACKERS, {"tensorboard": RecordingTracker}), mock.patch.dict(
            sys.modules, {"tensorboard": self.package}
        ):
            self.assertEqual(self.run_main("tensorboard", "run", "curves")[0], 0)
        self.assertEqual(RecordingTracker.opened[-1].folder, "curves")

    def test_content_that_cannot_be_used_is_3(self):
        self.assertExits(3, "absent/metrics.jsonl: No such file", "wandb", "./absent")
        self.assertExits(3, "--x/y/metrics.jsonl: No such file", "wandb", "--follow", "--", "--x/y")
        self.write(row(1), "{")
        self.assertExits(3, "freshet: run/metrics.jsonl:2: ", "wandb", "run")
        self.assertExits(3, "absent: No such file", "wandb", "a", "--token-file", "absent")

    def test_a_command_line_that_cannot_be_used_is_2(self):
        self.assertExits(2, "invalid choice", "nobody", "run")
        self.assertExits(2, "DIR", "wandb", "run", "curves")
        self.write("s3cret", name="run/token")
        self.assertExits(2, "TLS", "wandb", "a", "--server", "host:1", "--token-file", "run/token")

    def test_faults_of_the_server(self):
        for code, expected in (
            (grpc.StatusCode.NOT_FOUND, 4),
            (grpc.StatusCode.PERMISSION_DENIED, 4),
            (grpc.StatusCode.DEADLINE_EXCEEDED, 8),
            (grpc.StatusCode.INTERNAL, 1),
        ):
            service = RecordedService()
            service.answer("Get", Fault(code, "it is so"))
            self.assertExits(expected, "freshet: ", "wandb", "a", "--server", service.address)
            service.stop()

    def test_no_server_is_7_or_no_run_folder(self):
        gone = freshet.ConnectionLost("no connection")
        with mock.patch("freshet.client.Client.get", side_effect=gone):
            self.assertExits(7, "no connection", "wandb", "a", "--server", "127.0.0.1:1")
            self.assertExits(3, "a: no such run folder, and no connection", "wandb", "a")

    def test_a_package_that_is_missing_is_named(self):
        self.write(row(1))
        with mock.patch.dict(sys.modules, {"mlflow": None}):
            install = f"{sys.executable} -m pip install mlflow-skinny sqlalchemy alembic"
            self.assertExits(1, install, "mlflow", "run")

    def test_faults_of_the_tracker_are_told_in_a_line(self):
        self.write(row(1))
        with mock.patch.object(RecordingTracker, "write", side_effect=self.package.Fault("no API key")):
            self.assertExits(1, "freshet: wandb: no API key", "wandb", "run")
        with mock.patch.object(RecordingTracker, "write", side_effect=RuntimeError("ours")):
            with self.assertRaisesRegex(RuntimeError, "ours"):
                self.run_main("wandb", "run")

    def test_ctrl_c_closes_and_exits_with_130(self):
        self.write(row(1))
        with mock.patch.object(RecordingTracker, "write", side_effect=KeyboardInterrupt):
            self.assertExits(130, "", "wandb", "run")
        self.assertEqual(RecordingTracker.opened[0].state, "CANCELLED")


if __name__ == "__main__":
    unittest.main()
