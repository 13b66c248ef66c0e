"""Experiment trackers, written through their own packages.

The packages are imported on use, so the client works without them.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable
from typing import Protocol

from freshet.metrics import Point

_SUFFIX = ".freshet"
_MLFLOW_BATCH = 1000  # metrics per call that its servers accept
_MLFLOW_NAME = 250  # maximum characters of a metric's name


class Tracker(Protocol):
    """A new run in a tracker: TRACKERS[...](name, start as Unix time, folder of TensorBoard's file).

    Raises the errors of the tracker's package, and OSError.
    """

    PACKAGES: str  # arguments of `pip install`
    place: str  # where it is written: a file, folder, address or id
    next: str  # a command that shows or uploads it, or ""

    def write(self, points: Iterable[Point]) -> None: ...

    def close(self, state: str) -> None:
        """state: of the job, "SUCCEEDED", "FAILED" or "CANCELLED"; "" if unknown."""


class TensorBoard:
    """An event file in `folder`. Replaces the one of an earlier export."""

    PACKAGES = "tensorboard"

    def __init__(self, name: str, start: float, folder: str):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        self._start = start
        pattern = f"events.out.tfevents.*{_SUFFIX}"
        former = set(pathlib.Path(folder).glob(pattern))
        self._writer = EventFileWriter(folder, filename_suffix=_SUFFIX)
        self.place = str(min(set(pathlib.Path(folder).glob(pattern)) - former))
        for file in former:
            file.unlink(missing_ok=True)
        self.next = f"tensorboard --logdir {folder}"

    def write(self, points: Iterable[Point]) -> None:
        for point in points:
            values = [
                self._summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()
            ]
            self._writer.add_event(
                self._event(
                    wall_time=self._start + point.seconds,
                    step=point.step,
                    summary=self._summary(value=values),
                )
            )
        self._writer.flush()

    def close(self, state: str) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A Weights & Biases run, configured by wandb's environment variables (WANDB_MODE, ...)."""

    PACKAGES = "wandb"

    def __init__(self, name: str, start: float, folder: str):
        import wandb

        # Do not record this process: it is not the training.
        settings = wandb.Settings(console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True)
        self._wandb = wandb
        self._start = start
        self._run = wandb.init(name=name, settings=settings)
        # wandb's step must not decrease, but an evaluation may end after later training steps.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self.place = (not self._run.offline and self._run.url) or self._run.settings.sync_dir
        self.next = ""  # wandb prints it

    def write(self, points: Iterable[Point]) -> None:
        for point in points:
            time = self._start + point.seconds
            self._run.log({"step": point.step, "_timestamp": time, **point.values})

    def close(self, state: str) -> None:
        self._run.finish(exit_code=1 if state in ("FAILED", "CANCELLED") else 0)
        self._wandb.teardown()  # flushes the file of an offline run


class MLflow:
    """An MLflow run, configured by MLflow's environment variables (MLFLOW_TRACKING_URI, ...)."""

    PACKAGES = "mlflow-skinny sqlalchemy alembic"

    def __init__(self, name: str, start: float, folder: str):
        import mlflow

        uri = mlflow.get_tracking_uri()
        if uri.startswith("sqlite:"):  # the default
            import alembic  # noqa: F401
            import sqlalchemy  # noqa: F401
        self._mlflow = mlflow
        self._start = start
        self._run = mlflow.start_run(run_name=name).info.run_id
        self._client = mlflow.MlflowClient()
        self.place = self._run
        # A server's address may contain a password, so it is not printed.
        self.next = f"mlflow ui --backend-store-uri {uri}" if uri.startswith(("sqlite:", "file:")) else ""

    def write(self, points: Iterable[Point]) -> None:
        metrics = [
            self._mlflow.entities.Metric(
                mlflow_name(tag), value, int(1000 * (self._start + point.seconds)), point.step
            )
            for point in points
            for tag, value in point.values.items()
        ]
        for at in range(0, len(metrics), _MLFLOW_BATCH):
            self._client.log_batch(self._run, metrics=metrics[at : at + _MLFLOW_BATCH])

    def close(self, state: str) -> None:
        self._mlflow.end_run({"FAILED": "FAILED", "CANCELLED": "KILLED"}.get(state, "FINISHED"))


def mlflow_name(tag: str) -> str:
    """Maps `tag` to the characters and path segments that MLflow accepts in metric names."""
    text = re.sub(r"[^\w.\-: /]", "_", tag)[:_MLFLOW_NAME]
    return "/".join("_" * len(part) if part in (".", "..") else part or "_" for part in text.split("/"))


TRACKERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}
