#!/usr/bin/env python3
"""Dashboards, rules, rule tests and runbooks are consistent with each other and with the programs."""
import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "helm" / "dashboards"))
import promql  # noqa: E402

DASHBOARDS = {path.stem: json.loads(path.read_text())
              for path in sorted((ROOT / "helm" / "freshet" / "dashboards").glob("*.json"))}
RULES = (ROOT / "helm" / "freshet" / "rules" / "freshet.yaml").read_text()
RUNBOOKS = ROOT / "docs" / "runbooks"
CASES = "".join(path.read_text() for path in sorted((ROOT / "tests" / "watching" / "rules").glob("*_test.yaml")))
CODE = ("controller", "env_workers", "rollout", "services", "trainer", "weights")
ALERTS = re.findall(r"- alert: (\w+)", RULES)
MAX_PANELS = 16


def declared_metrics():
    """Returns the metric names in the sources of the roles. `local` is left out: the dashboards do not cover it."""
    names = {"up"}
    for folder in CODE:
        for path in [*(ROOT / folder).rglob("*.cc"), *(ROOT / folder).rglob("*.h")]:
            names |= set(re.findall(r'"((?:freshet|process)_[a-z_]+)"', path.read_text()))
    return names


def expressions():
    """Yields (rule, expression) of the rule file."""
    for rule in re.split(r"\n +- (?=alert:|record:)", RULES)[1:]:
        name = re.match(r"(?:alert|record): (\S+)", rule)[1]
        block = re.search(r"^( +)expr: (?:>-\n((?:\1  .*\n)+)|(.+)\n)", rule + "\n", re.MULTILINE)
        yield name, " ".join((block[2] or block[3]).split())


def queries():
    """Yields (dashboard: panel, expression) of the dashboards."""
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]


class PromqlTest(unittest.TestCase):
    def test_selectors_are_found_once_and_without_ranges(self):
        expr = ('sum by (le) (rate(a_bucket{x=")", y=~"1m"}[1h30m] offset 5m)) / 1e6 > on (job) group_left (x) b:c:d '
                'or a_bucket{x=")", y=~"1m"}')
        self.assertEqual(promql.selectors(expr), ['a_bucket{x=")",y=~"1m"}', "b:c:d"])

    def test_variables_functions_and_numbers_are_no_selectors(self):
        expr = "time() - max without (a) (b[$__rate_interval]) > -Inf and 2 unless c == bool 1"
        self.assertEqual(promql.selectors(expr), ["b", "c"])

    def test_metrics_of_histograms_have_no_suffix(self):
        self.assertEqual(promql.metrics("rate(a_sum[1m]) / rate(a_count[1m])"), {"a"})

    def test_variables_are_replaced_and_unknown_ones_refused(self):
        self.assertEqual(promql.substitute('a{b="$x"}[${y}]', {"x": "1", "y": "5m"}), 'a{b="1"}[5m]')
        with self.assertRaises(KeyError):
            promql.substitute("$z", {})


class DashboardsTest(unittest.TestCase):
    def test_files_are_what_the_generator_writes(self):
        result = subprocess.run([sys.executable, str(ROOT / "helm" / "dashboards" / "generate.py"), "--check"],
                                capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (0, "ok\n"), result.stderr)

    def test_there_are_five_with_few_panels_and_names_of_their_own(self):
        self.assertEqual(sorted(DASHBOARDS), ["infrastructure", "overview", "pipeline", "policy", "signals"])
        for name, dashboard in DASHBOARDS.items():
            self.assertEqual(dashboard["uid"], f"freshet-{name}")
            self.assertLessEqual(len(dashboard["panels"]), MAX_PANELS)
            for value in ([p["id"] for p in dashboard["panels"]], [p["title"] for p in dashboard["panels"]]):
                self.assertEqual(len(set(value)), len(value), name)

    def test_all_read_from_the_data_source_that_the_user_chooses(self):
        for name, dashboard in DASHBOARDS.items():
            first = dashboard["templating"]["list"][0]
            self.assertEqual((first["name"], first["type"], first["query"]), ("DS_PROMETHEUS", "datasource", "prometheus"))
            sources = set(re.findall(r'"uid": "(\$[^"]*)"', json.dumps(dashboard)))
            self.assertEqual(sources, {"${DS_PROMETHEUS}"}, name)

    def test_panels_do_not_overlap_and_explain_themselves(self):
        for name, dashboard in DASHBOARDS.items():
            taken = set()
            for panel in dashboard["panels"]:
                place = panel["gridPos"]
                cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
                self.assertFalse(cells & taken or max(cells)[0] >= 24, f"{name}: {panel['title']}")
                taken |= cells
                self.assertTrue(panel["description"].endswith("."), f"{name}: {panel['title']}")

    def test_every_metric_is_one_that_a_program_declares(self):
        declared = declared_metrics()
        for place, expr in queries():
            self.assertEqual(promql.metrics(expr) - declared, set(), place)


class RulesTest(unittest.TestCase):
    def test_every_metric_is_declared_or_recorded(self):
        known = declared_metrics() | set(re.findall(r"- record: (\S+)", RULES))
        rules = list(expressions())
        self.assertEqual(len(rules), len(re.findall(r"^ +expr:", RULES, re.MULTILINE)))
        for name, expr in rules:
            self.assertTrue(promql.metrics(expr), name)
            self.assertEqual(promql.metrics(expr) - known, set(), name)

    def test_every_alert_has_a_severity_and_texts(self):
        for alert in re.split(r"\n +- (?=alert:|record:)|\n  - name:", RULES)[1:]:
            if alert.startswith("alert:"):
                name = alert.split()[1]
                self.assertRegex(alert, r"labels: \{severity: (critical|warning|info)\}", name)
                for key in ("summary", "description"):
                    self.assertIn(f"          {key}:", alert, name)
                self.assertIn(f"runbook_url: docs/runbooks/{name}.md\n", alert + "\n")

    def test_every_alert_has_a_case_that_fires_and_one_that_stays_quiet(self):
        for alert in ALERTS:
            cases = re.findall(rf"alertname: {alert}\n +exp_alerts:( \[\])?", CASES)
            self.assertCountEqual(cases, ["", " []"], alert)


class RunbooksTest(unittest.TestCase):
    def test_every_alert_has_a_page_and_every_page_an_alert(self):
        pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
        self.assertEqual(pages, set(ALERTS))

    def test_pages_say_what_it_means_what_to_look_at_and_what_to_do(self):
        for alert in ALERTS:
            headings = re.findall(r"^#+ (.*)$", (RUNBOOKS / f"{alert}.md").read_text(), re.MULTILINE)
            self.assertEqual(headings, [alert, "What it means", "What to look at", "What to do"])

    def test_the_index_names_every_alert_with_its_severity(self):
        index = (RUNBOOKS / "README.md").read_text()
        rows = dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (\w+) \|", index, re.MULTILINE))
        severities = re.findall(r"- alert: (\w+)\n(?:.*\n)*?.*severity: (\w+)\}", RULES)
        self.assertEqual(rows, dict(severities))

    def test_links_lead_somewhere(self):
        for page in RUNBOOKS.glob("*.md"):
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_metrics_and_panels_that_pages_name_are_there(self):
        declared = declared_metrics()
        titles = {panel["title"] for dashboard in DASHBOARDS.values() for panel in dashboard["panels"]}
        for page in RUNBOOKS.glob("*.md"):
            text = " ".join(page.read_text().split())
            for metric in re.findall(r"`((?:freshet|process)_[a-z_]+)", text):
                self.assertIn(metric, declared, page.name)
            for panel in re.findall(r"panel \*([^*]+)\*", text):
                self.assertIn(panel, titles, page.name)


if __name__ == "__main__":
    unittest.main()
