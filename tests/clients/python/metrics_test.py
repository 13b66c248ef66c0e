"""Curves of metrics.jsonl, resumes, and files that are still written."""

import json
import pathlib
import tempfile
import unittest

from freshet.metrics import History, MetricsFile, Point, point_of


def step(number, lineage=0, seconds=0.0):
    return Point(number, None, lineage, seconds, {})


def evaluation(version, lineage=0, name="heldout"):
    return Point(version, name, lineage, 0.0, {})


class PointTest(unittest.TestCase):
    def test_a_step_draws_curves_of_its_numbers(self):
        point = point_of(
            {
                "step": 300,
                "policy_version": 300,
                "lineage": 1,
                "reward_mean": 0.5,
                "reward_components": {"exact": 0.25, "mine/part": 1},
                "staleness_tokens": {"2": 7},
                "wall_seconds": 10,
                "of_a_later_version": 3,
            }
        )
        self.assertEqual((point.step, point.eval_name, point.lineage, point.seconds), (300, None, 1, 10))
        self.assertEqual(
            point.values,
            {
                "train/lineage": 1,
                "train/reward_mean": 0.5,
                "train/wall_seconds": 10,
                "train/of_a_later_version": 3,
                "reward/exact": 0.25,
                "reward/mine/part": 1,
                "staleness_tokens/2": 7,
            },
        )

    def test_an_evaluation_is_drawn_at_its_version(self):
        point = point_of(
            {
                "eval_name": "heldout",
                "policy_version": 20,
                "eval_accuracy": 0.75,
                "reward_components": {"exact": 0.5},
            }
        )
        self.assertEqual((point.step, point.eval_name), (20, "heldout"))
        self.assertEqual(
            point.values,
            {"eval/heldout/eval_accuracy": 0.75, "eval/heldout/reward/exact": 0.5},
        )

    def test_what_is_no_finite_number_of_32_bits_draws_nothing(self):
        odd = ["NaN", "Infinity", "1e39", "1" + "0" * 400, "null", "true", '"1"', "[1]", '{"x": {"y": 1}}']
        row = json.loads('{"step": 1, "largest": 3.4028234e38, ' + ", ".join(
            f'"k{i}": {text}, "in{i}": {{"k": {text}}}' for i, text in enumerate(odd)
        ) + "}")
        self.assertEqual(list(point_of(row).values), ["train/largest"])

    def test_names_are_texts_that_utf8_expresses(self):
        row = json.loads('{"step": 1, "reward_components": {"\\ud800": 1}}')
        self.assertEqual(point_of(row).values, {"reward/?": 1})

    def test_a_row_of_another_kind_is_no_point(self):
        self.assertIsNone(point_of({"event": "resumed"}))

    def test_a_value_of_a_wrong_type_is_named(self):
        for key, row in (
            ("not a JSON object", [1]),
            ("step", {"step": 1.5}),
            ("step", {"step": None}),
            ("step", {"step": True}),
            ("step", {"step": 2**63}),
            ("lineage", {"step": 1, "lineage": "0"}),
            ("wall_seconds", {"step": 1, "wall_seconds": "10"}),
            ("wall_seconds", {"step": 1, "wall_seconds": -1}),
            ("wall_seconds", {"step": 1, "wall_seconds": 10**400}),
            ("eval_name", {"eval_name": 1}),
            ("policy_version", {"eval_name": "a", "policy_version": "1"}),
        ):
            with self.assertRaisesRegex(ValueError, key, msg=row):
                point_of(row)


class HistoryTest(unittest.TestCase):
    @staticmethod
    def history(points):
        history = History()
        return [history.add(point) for point in points], [(p.step, p.lineage) for p in history]

    def test_the_highest_lineage_counts(self):
        # Lineage 0 reached step 5 and was resumed from version 2; lineage 1 is at step 4.
        steps = [step(n) for n in range(1, 6)] + [step(n, 1) for n in (3, 4)]
        intact, surviving = self.history(steps)
        self.assertEqual(intact, [True] * 5 + [False, True])
        self.assertEqual(surviving, [(1, 0), (2, 0), (3, 1), (4, 1)])  # step 5 of lineage 0 is orphaned

    def test_forks_of_forks(self):
        steps = [step(n) for n in range(1, 5)] + [step(n, 1) for n in (4, 5, 6)] + [step(2, 2), step(3, 2)]
        for order in (steps, steps[::-1]):
            self.assertEqual(self.history(order)[1], [(1, 0), (2, 2), (3, 2)])

    def test_evaluations_follow_the_steps_of_their_lineage(self):
        points = [step(1), evaluation(0), evaluation(2), evaluation(4), step(3, 1), evaluation(4, 1)]
        points += [evaluation(4)]  # late, so superseded
        intact, surviving = self.history(points)
        self.assertEqual(intact, [True] * 4 + [False, True, True])
        self.assertEqual(surviving, [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)])

    def test_the_last_of_several_counts(self):
        history = History()
        first, again, other = evaluation(4), evaluation(4), evaluation(4, name="other")
        self.assertEqual([history.add(p) for p in (step(4), first, again, other)], [True, True, False, True])
        self.assertEqual([p.eval_name for p in history], [None, "heldout", "other"])
        self.assertEqual([p in history for p in (first, again)], [False, True])

    def test_a_resume_that_repeats_nothing_leaves_all(self):
        self.assertEqual(self.history([step(1), step(2), step(3, 1)])[0], [True] * 3)


class MetricsFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "metrics.jsonl"
        self.file = MetricsFile(self.path)

    def append(self, data):
        with open(self.path, "ab") as file:
            file.write(data)

    def steps(self):
        return [point.step for point in self.file.read()]

    def test_each_row_is_read_once_when_it_is_whole(self):
        with self.assertRaises(FileNotFoundError):
            self.file.read()
        self.append(b'{"step": 1}\n{"other": 1}\n{"step": 2')
        self.assertEqual(self.steps(), [1])
        self.assertEqual(self.steps(), [])
        self.append(b'2}\n')
        self.assertEqual(self.steps(), [22])

    def test_a_malformed_row_is_named_by_its_line(self):
        good = b'{"step": 1}\n'
        for bad in (b"\n", b"{\n", b"7\n", b"\xff\n", b"[" * 100_000 + b"\n", b'{"step": "1"}\n'):
            self.path.write_bytes(good + bad)
            with self.assertRaisesRegex(ValueError, r"metrics.jsonl:2: ", msg=bad[:20]):
                MetricsFile(self.path).read()

    def test_a_line_has_a_limit(self):
        row = b'{"step": 1, "x": "' + b"y" * ((1 << 20) - 20) + b'"}'
        self.assertEqual(len(row), 1 << 20)
        self.append(row + b"\n")
        self.assertEqual(self.steps(), [1])
        self.append(row + b" ")
        with self.assertRaisesRegex(ValueError, ":2: line longer"):
            self.file.read()


if __name__ == "__main__":
    unittest.main()
