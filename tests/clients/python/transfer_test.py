"""Logs, checkpoints and the ledger of a job, with recorded answers."""

import hashlib
import json
import pathlib
import tempfile
import unittest

import freshet
import grpc
from freshet.job.v1 import job_service_pb2 as pb
from recorded_service import Fault, RecordedCase, RecordedService

UNAVAILABLE = Fault(grpc.StatusCode.UNAVAILABLE, "goes down")


def entry(second, text, worker="trainer-1"):
    message = pb.LogEntry(role=worker.split("-")[0], worker=worker, level="info", text=text)
    message.time.seconds = second
    return message


def chunks(files, promised=None):
    """The chunks of {name: data}, with a manifest of `promised`."""
    manifest = {
        "files": [
            {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in (promised or files).items()
        ]
    }
    result = []
    for name, data in {**files, "manifest.json": json.dumps(manifest).encode()}.items():
        result += [pb.FileChunk(path=name, data=data[:2]), pb.FileChunk(data=data[2:])]
    return result


class TransferTest(RecordedCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    # Logs.

    def test_logs_are_lines(self):
        self.service.answer("Logs", [entry(1, "step 1"), entry(2, "leased 4", "rollout-1")])
        lines = list(self.client.logs("a", role="trainer", worker="w", tail=5))
        self.assertEqual([line.text for line in lines], ["step 1", "leased 4"])
        self.assertEqual((lines[1].role, lines[1].worker, lines[1].time), ("rollout", "rollout-1", 2.0))
        self.assertIn("trainer-1 info step 1", str(lines[0]))
        request = self.service.requests["Logs"][0]
        self.assertEqual((request.job_id, request.role, request.worker), ("a", "trainer", "w"))
        self.assertEqual((request.tail, request.follow), (5, False))

    def test_followed_logs_come_once_though_the_stream_breaks(self):
        self.service.answer(
            "Logs",
            [entry(1, "a"), entry(2, "b"), UNAVAILABLE],
            [entry(1, "a"), entry(2, "b"), entry(2, "other", "env-1"), entry(3, "c")],
        )
        lines = self.client.logs(follow=True, tail=2)
        self.assertEqual([next(lines).text for _ in range(4)], ["a", "b", "other", "c"])
        lines.close()
        self.assertEqual([request.tail for request in self.service.requests["Logs"]], [2, 0])

    def test_followed_logs_begin_with_the_first_line_also_on_a_stream_opened_again(self):
        self.service.answer(
            "Logs",
            [entry(5, "a"), entry(4, "late", "rollout-1"), UNAVAILABLE],
            [entry(1, "old", "env-1"), entry(5, "a"), entry(6, "b", "env-1")],
        )
        lines = self.client.logs(follow=True, tail=2)
        self.assertEqual([next(lines).text for _ in range(3)], ["a", "late", "b"])
        lines.close()

    def test_logs_of_no_job_are_refused(self):
        self.service.answer("Logs", [Fault(grpc.StatusCode.NOT_FOUND, "there is no job a")])
        with self.assertRaises(freshet.NotFound):
            list(self.client.logs("a"))

    # Checkpoints.

    def test_a_checkpoint_becomes_a_folder(self):
        files = {"config.json": b"{}", "state/optimizer.bin": b"momentum"}
        self.service.answer("ExportCheckpoint", chunks(files))
        folder = self.client.export_checkpoint("a", self.folder / "new" / "model", version=3)
        self.assertEqual((folder / "state" / "optimizer.bin").read_bytes(), b"momentum")
        self.assertEqual(self.service.requests["ExportCheckpoint"][0].version, 3)
        with self.assertRaises(FileExistsError):
            self.client.export_checkpoint("a", folder)
        self.assertEqual(len(self.service.requests["ExportCheckpoint"]), 1)

    def test_generated_files_become_a_folder(self):
        self.service.answer("ExportCheckpoint", chunks({"step-00000003.jsonl": b"{}\n"}))
        folder = self.client.export_generated("a", self.folder / "data", after=2)
        self.assertEqual((folder / "step-00000003.jsonl").read_bytes(), b"{}\n")
        self.assertEqual(self.service.requests["ExportCheckpoint"][0].generated_after, 2)

    def assert_nothing_stays(self, answer, error, text):
        self.service.answer("ExportCheckpoint", answer)
        with self.assertRaisesRegex(error, text):
            self.client.export_checkpoint("a", self.folder / "model")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_data_that_differs_from_the_manifest_is_refused(self):
        sent = chunks({"model.safetensors": b"weightz"}, {"model.safetensors": b"weights"})
        self.assert_nothing_stays(sent, freshet.FreshetError, "model.safetensors")

    def test_a_file_that_is_missing_is_named(self):
        sent = chunks({"a": b"aa"}, {"a": b"aa", "b": b"bb"})
        self.assert_nothing_stays(sent, freshet.FreshetError, "b: ")

    def test_a_broken_transfer_leaves_nothing(self):
        sent = [pb.FileChunk(path="a", data=b"aa"), UNAVAILABLE]
        self.assert_nothing_stays(sent, freshet.ConnectionLost, "goes down")

    def test_no_manifest_is_no_checkpoint(self):
        sent = [pb.FileChunk(path="a", data=b"aa")]
        self.assert_nothing_stays(sent, freshet.FreshetError, "manifest")

    def test_files_stay_inside_the_folder(self):
        for name in ("../evil", "/evil", "a/../b", "a//b", "x" * 2000):
            service = RecordedService()
            service.answer("ExportCheckpoint", [pb.FileChunk(path=name, data=b"aa")])
            with freshet.Client(service.address) as client:
                with self.assertRaisesRegex(freshet.FreshetError, "does not belong"):
                    client.export_checkpoint("a", self.folder / "model")
            service.stop()
        self.assertEqual(list(self.folder.iterdir()), [])

    # The ledger.

    def test_the_ledger_is_read_on_after_a_break(self):
        def row(seq):
            return json.dumps({"seq": seq, "event": "open"})

        self.service.answer(
            "ReadLedger",
            [pb.LedgerChunk(rows=[row(1), row(2)]), UNAVAILABLE],
            [pb.LedgerChunk(rows=[row(3)])],
        )
        self.assertEqual([each["seq"] for each in self.client.ledger("a")], [1, 2, 3])
        after = [request.after_seq for request in self.service.requests["ReadLedger"]]
        self.assertEqual(after, [0, 2])


if __name__ == "__main__":
    unittest.main()
