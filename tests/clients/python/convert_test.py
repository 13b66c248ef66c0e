"""`python3 -m freshet.convert`: Parquet files written by the real pyarrow. Skipped if it is missing."""

import contextlib
import datetime
import decimal
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from freshet import convert

HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def run_command(self, *arguments):
        """Returns the exit code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch("signal.signal"), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = convert.main(arguments)
            except SystemExit as left:
                code = left.code
        return code, out.getvalue(), err.getvalue()

    def assert_refused(self, code, message, *arguments):
        """The command fails with `message` and leaves no file behind."""
        before = sorted(pathlib.Path().rglob("*"))
        found, out, err = self.run_command(*arguments)
        self.assertEqual((found, out), (code, ""), err)
        self.assertRegex(err, message)
        self.assertEqual(sorted(pathlib.Path().rglob("*")), before)


class WithoutPyarrowTest(Case):
    def test_it_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}):
            self.assert_refused(1, "pyarrow.*; install it with .* -m pip install pyarrow", "a.parquet", "out")


@unittest.skipUnless(HAS_PYARROW, "the Python package pyarrow is not installed")
class ConvertTest(Case):
    def write(self, name, columns, **options):
        """columns: name -> values, or a pyarrow array."""
        import pyarrow
        import pyarrow.parquet

        pathlib.Path(name).parent.mkdir(exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), name, **options)

    def rows(self, *arguments):
        code, out, err = self.run_command(*arguments)
        self.assertEqual((code, out), (0, "out.jsonl\n"), err)
        return [json.loads(line) for line in pathlib.Path("out.jsonl").read_text("utf-8").splitlines()]

    def test_messages_and_tools_stay_nested(self):
        messages = [
            {"role": "user", "content": "Où?\n\u2028", "tool_calls": None},
            {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
        ]
        self.write("a.parquet", {"messages": [messages], "tools": ['[{"name": "f"}]'], "answer": ["42"]})
        code, out, err = self.run_command("a.parquet", "out.jsonl")
        self.assertEqual((code, out, err), (0, "out.jsonl\n", "freshet: 1 row from 1 file\n"))
        (line,) = pathlib.Path("out.jsonl").read_bytes().split(b"\n")[:-1]
        self.assertEqual(
            json.loads(line), {"messages": messages, "tools": '[{"name": "f"}]', "answer": "42"}
        )

    def test_every_type_with_a_json_form(self):
        import pyarrow as pa

        day = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
        cases = {
            "null": (pa.array([None], pa.null()), None),
            "boolean": (pa.array([True]), True),
            "uint64": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
            "float32": (pa.array([0.5], pa.float32()), 0.5),
            "large_string": (pa.array(["é"], pa.large_string()), "é"),
            "dictionary": (pa.array(["a"]).dictionary_encode(), "a"),
            "list": (pa.array([[1, None]]), [1, None]),
            "large_list": (pa.array([["a"]], pa.large_list(pa.string())), ["a"]),
            "fixed_list": (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [1, 2]),
            "struct": (pa.array([{"a": {"b": None, "c": 1}}]), {"a": {"b": None, "c": 1}}),
            "map": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), {"k": 1}),
            "date": (pa.array([day.date()]), "2026-01-02"),
            "time": (pa.array([day.time()]), "03:04:05.000006"),
            "timestamp": (pa.array([day]), "2026-01-02T03:04:05.000006"),
            "utc": (pa.array([day], pa.timestamp("us", "UTC")), "2026-01-02T03:04:05.000006+00:00"),
            "decimal": (pa.array([decimal.Decimal("1.10")]), "1.10"),
        }
        self.write("a.parquet", {name: array for name, (array, _) in cases.items()})
        (row,) = self.rows("a.parquet", "out.jsonl")
        for name, (_, expected) in cases.items():
            with self.subTest(name):
                self.assertEqual(row.get(name), expected)
        self.assertNotIn("null", row)

    def test_a_type_without_a_json_form_is_named_before_anything_is_written(self):
        import pyarrow as pa

        binary = pa.struct({"bytes": pa.binary()})
        self.write("d/1.parquet", {"question": ["a"], "image": ["x"]})
        self.write("d/2.parquet", {"question": ["b"], "image": pa.array([{"bytes": b"x"}], binary)})
        self.assert_refused(
            3, r"d/2.parquet: column image.bytes: is of type binary, .*--columns", "d", "out.jsonl"
        )
        for kind in (pa.duration("s"), pa.map_(pa.int8(), pa.int8())):
            self.write("a.parquet", {"x": pa.array([None], kind)})
            self.assert_refused(3, "a.parquet: column x: is of type", "a.parquet", "out.jsonl")
        self.assertEqual(len(self.rows("d", "out.jsonl", "--columns", "question")), 2)

    def test_a_value_that_json_does_not_have_is_named(self):
        import pyarrow as pa

        floats = pa.array([[0.5]] * 300 + [[float("nan")]])
        self.write("a.parquet", {"x": floats})
        self.assert_refused(3, "a.parquet: column x, row 301: nan", "a.parquet", "out.jsonl")
        self.write("b.parquet", {"x": pa.array([10**15], pa.timestamp("ms"))})
        self.assert_refused(3, "b.parquet: column x, row 1: ", "b.parquet", "out.jsonl")

    def test_a_folder_is_read_in_the_order_of_names(self):
        for i in (2, 0, 1):
            values = list(range(1000 * i, 1000 * i + 600))
            self.write(f"d/train-{i:05}-of-00003.parquet", {"i": values}, row_group_size=250)
        pathlib.Path("d/README.md").write_text("", encoding="utf-8")
        expected = [{"i": 1000 * i + j} for i in range(3) for j in range(600)]
        self.assertEqual(self.rows("d", "out.jsonl"), expected)
        for limit in (1, 256, 601, 9999):
            with self.subTest(limit=limit):
                limited = self.rows("d", "out.jsonl", "--force", "--limit", str(limit))
                self.assertEqual(limited, expected[:limit])

    def test_sets_of_one_folder_are_not_mixed(self):
        for name in ("test", "train"):
            self.write(f"d/{name}-00000-of-00001.parquet", {"set": [name]})
        self.assert_refused(3, "d: holds shards of test, train; .*--prefix test-", "d", "out.jsonl")
        self.assertEqual(self.rows("d", "out.jsonl", "--prefix", "train-"), [{"set": "train"}])
        self.assert_refused(3, r"d: there is no dev\*.parquet", "d", "b.jsonl", "--prefix", "dev")

    def test_columns_are_chosen_and_ordered(self):
        self.write("a.parquet", {"a": [1], "b": [2], "c": [3]})
        self.assertEqual(list(self.rows("a.parquet", "out.jsonl", "--columns", "c,a")[0]), ["c", "a"])
        self.assert_refused(3, "has no column d; it has a, b, c", "a.parquet", "x", "--columns", "d")
        for wrong in ("a,a", "a,", ""):
            self.assert_refused(2, "--columns", "a.parquet", "x", f"--columns={wrong}")

    def test_it_replaces_a_file_only_when_told_to_and_only_by_a_complete_one(self):
        self.write("a.parquet", {"x": [1]})
        self.write("bad.parquet", {"x": [float("inf")]})
        target = pathlib.Path("out.jsonl")
        target.write_text("mine", encoding="utf-8")
        self.assert_refused(3, "out.jsonl: exists already; .*--force", "a.parquet", "out.jsonl")
        self.assert_refused(3, "inf", "bad.parquet", "out.jsonl", "--force")
        self.assertEqual(target.read_text("utf-8"), "mine")
        self.assertEqual(self.rows("a.parquet", "out.jsonl", "--force"), [{"x": 1}])

    def test_bad_sources(self):
        pathlib.Path("text.parquet").write_text("not a Parquet file", encoding="utf-8")
        pathlib.Path("empty").mkdir()
        self.write("none.parquet", {"x": []})
        self.write("torn.parquet", {"x": list(range(5000))})
        torn = pathlib.Path("torn.parquet").read_bytes()
        pathlib.Path("torn.parquet").write_bytes(torn[:100] + bytes(2000) + torn[2100:])
        for source, message in {
            "absent.parquet": "absent.parquet: No such file",
            "text.parquet": "text.parquet: ",
            "torn.parquet": "torn.parquet: ",
            "empty": r"empty: there is no \*.parquet",
            "none.parquet": "none.parquet: has no rows",
        }.items():
            with self.subTest(source):
                self.assert_refused(3, message, source, "out.jsonl")
        self.assert_refused(3, "missing/out.jsonl.*No such file", "torn.parquet", "missing/out.jsonl")
        self.assert_refused(2, "--limit", "none.parquet", "out.jsonl", "--limit", "0")
        self.assert_refused(2, "--prefix", "none.parquet", "out.jsonl", "--prefix", "a")

    def test_ctrl_c_leaves_nothing(self):
        self.write("a.parquet", {"x": [1, 2]})
        with mock.patch("json.dumps", side_effect=KeyboardInterrupt):
            self.assert_refused(130, "^$", "a.parquet", "out.jsonl")

    def test_memory_does_not_grow_with_the_rows(self):
        import pyarrow as pa

        before = pa.total_allocated_bytes()
        peak = 0
        self.write("a.parquet", {"x": [str(i) * 200 for i in range(20_000)]}, row_group_size=1000)
        for _ in convert._lines(["a.parquet"], ()):
            peak = max(peak, pa.total_allocated_bytes() - before)
        self.assertLess(peak, 4_000_000)  # the texts have 18 MB


if __name__ == "__main__":
    unittest.main()
