"""Exports through the trackers' real packages, offline. Tests of missing packages are skipped."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import struct
import tempfile
import unittest
from unittest import mock

from freshet import export
from freshet.trackers import mlflow_name

ROWS = (
    '{"eval_name": "heldout", "policy_version": 0, "eval_accuracy": 0.25, "wall_seconds": 1}',
    '{"step": 1, "reward_mean": 0.5, "loss": null, "reward_components": {"a b": 2}, "wall_seconds": 10}',
    '{"step": 2, "reward_mean": 0.125, "wall_seconds": 20}',
    '{"step": 2, "lineage": 1, "reward_mean": 0.75, "wall_seconds": 30}',
)


def needs(module):
    missing = importlib.util.find_spec(module) is None
    return unittest.skipIf(missing, f"the Python package {module} is not installed")


class TrackerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        pathlib.Path("run").mkdir()
        pathlib.Path("run/metrics.jsonl").write_text("".join(row + "\n" for row in ROWS), encoding="utf-8")
        os.utime("run/metrics.jsonl", (1030.0, 1030.0))  # so the run began at 1000

    def export(self, *arguments, **environment):
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, {"HOME": os.getcwd(), **environment}), mock.patch("signal.signal"):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                self.assertEqual(export.main(arguments), 0, err.getvalue())
        return out.getvalue().splitlines()[-1], err.getvalue()

    @needs("tensorboard")
    def test_tensorboard(self):
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

        path, err = self.export("tensorboard", "run")
        self.assertIn("next: tensorboard --logdir run/tensorboard\n", err)
        again, _ = self.export("tensorboard", "run")
        self.assertEqual([str(file) for file in pathlib.Path("run/tensorboard").iterdir()], [again])
        self.assertNotEqual(path, again)
        events = {}
        for event in LegacyEventFileLoader(again).Load():
            for value in event.summary.value:
                events[value.tag, event.step] = (value.simple_value, event.wall_time)
        self.assertEqual(events["eval/heldout/eval_accuracy", 0], (0.25, 1001.0))
        self.assertEqual(events["train/reward_mean", 1], (0.5, 1010.0))
        self.assertEqual(events["reward/a b", 1], (2.0, 1010.0))
        self.assertEqual(events["train/reward_mean", 2], (0.75, 1030.0))
        self.assertNotIn(("train/loss", 1), events)

    @needs("tensorboard")
    def test_tensorboard_names_the_folder_that_cannot_be_written(self):
        with mock.patch("signal.signal"), contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(export.main(["tensorboard", "run", "run/metrics.jsonl/x"]), 3)
        self.assertIn("run/metrics.jsonl/x: Not a directory", err.getvalue())

    @needs("wandb")
    def test_wandb_offline(self):
        from wandb.proto import wandb_internal_pb2

        folder, _ = self.export("wandb", "run", WANDB_MODE="offline")
        (file,) = pathlib.Path(folder).glob("run-*.wandb")
        data = file.read_bytes()
        # LevelDB's log format after a header of 7 bytes: checksum, length, type (1: whole), record.
        records, at = [], 7
        while at < len(data):
            _, length, kind = struct.unpack_from("<IHB", data, at)
            self.assertEqual(kind, 1)
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data[at + 7 : at + 7 + length])
            records.append(record)
            at += 7 + length
        history = [
            {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in r.history.item}
            for r in records
            if r.HasField("history")
        ]
        rows = [(r["step"], r["_timestamp"], r.get("train/reward_mean")) for r in history]
        self.assertEqual(rows, [(0, 1001.0, None), (1, 1010.0, 0.5), (2, 1030.0, 0.75)])
        self.assertEqual(history[0]["eval/heldout/eval_accuracy"], 0.25)
        self.assertEqual(history[1]["reward/a b"], 2)
        self.assertEqual([r.run.display_name for r in records if r.HasField("run")], ["run"])
        self.assertEqual([r.exit.exit_code for r in records if r.HasField("exit")], [0])

    @needs("mlflow")
    @needs("sqlalchemy")
    def test_mlflow_in_a_local_database(self):
        import mlflow

        uri = f"sqlite:///{os.getcwd()}/mlflow.db"
        run, err = self.export("mlflow", "run", MLFLOW_TRACKING_URI=uri)
        self.assertIn(f"next: mlflow ui --backend-store-uri {uri}\n", err)
        client = mlflow.MlflowClient(tracking_uri=uri)
        info = client.get_run(run).info
        self.assertEqual((info.run_name, info.status), ("run", "FINISHED"))
        values = [(m.step, m.timestamp, m.value) for m in client.get_metric_history(run, "train/reward_mean")]
        self.assertEqual(values, [(1, 1_010_000, 0.5), (2, 1_030_000, 0.75)])
        (accuracy,) = client.get_metric_history(run, "eval/heldout/eval_accuracy")
        self.assertEqual((accuracy.step, accuracy.value), (0, 0.25))

    def test_mlflow_takes_only_names_that_are_paths(self):
        for tag, name in (
            ("train/loss", "train/loss"),
            ("reward/a b-c.d_e:f", "reward/a b-c.d_e:f"),
            ("reward/50%", "reward/50_"),
            ("reward/../..", "reward/__/__"),
            ("reward//.", "reward/_/_"),
            ("reward/" + "x" * 300, "reward/" + "x" * 243),
            ("reward/" + "x" * 242 + "/yy", "reward/" + "x" * 242 + "/_"),
        ):
            self.assertEqual(mlflow_name(tag), name)


if __name__ == "__main__":
    unittest.main()
