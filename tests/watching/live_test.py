#!/usr/bin/env python3
"""Every query of every dashboard and rule returns data from a real cluster with a running job.

    live_test.py BINARIES

Starts redis-server, one process of each role (two rollouts) with mutual TLS and an authorization policy, and Debian's
Prometheus with the chart's rules. Submits a job with episodes and runs the queries of Grafana. Exits with 77 (skipped)
if a required program is missing.
"""
import json
import pathlib
import re
import sys
import tempfile
import time
import unittest

from cluster import ROOT, RULES, Cluster, await_true, missing

import promql  # from helm/dashboards, which cluster.py adds to sys.path

JOB = """
name: watched
seed: 1
model: {init: random, config: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32,
  max_position_embeddings: 64}}
tokenizer: {type: char, alphabet: "0123456789+=<>!?"}
dataset: {type: arithmetic, operands: 2, digits: 2, train_rows: 4000}
environment: {type: guess_number, max_turns: 2, max_turn_tokens: 8, options: {max: "10"}}
group_size: 2
prompts_per_step: 8
rollout: {max_new_tokens: 40}
staleness: {max: 2}
reward:
  components:
    won: {type: environment}
    never: {type: regex, pattern: "x"}  # which the alphabet lacks
    judge: {type: judge, model: none, text: "{response}", max_calls: 10, only_if: never}
loss: {preset: grpo}
trainer: {steps: 100000}
optimizer: {learning_rate: 1.0e-4}
checkpoint: {every_steps: 10}
eval: {rows: 4, every_steps: 10}
"""
WINDOW = "10s"  # of rates; scrapes are 1 s apart
STEPS = 25      # enough for evaluations and checkpoints
DASHBOARDS = ROOT / "helm" / "freshet" / "dashboards"
BINARIES = None  # set by the command line


class LiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = cls.enterClassContext(Cluster(BINARIES, pathlib.Path(folder.name)))
        cls.prometheus = cls.cluster.prometheus
        cls.cluster.submit("watched", JOB)
        await_true(f"step {STEPS}", lambda: cls.cluster.job("watched").get("step", 0) >= STEPS)
        # A rate needs two scrapes of a series.
        await_true("rates", lambda: cls.prometheus.now(f"rate(freshet_steps_total[{WINDOW}]) > 0"))

    def expect_data(self, queries):
        """queries: {name: expression}. Retries, because rates and ages need several scrapes of a new series."""
        lacking = dict(queries)
        deadline = time.monotonic() + 30
        while lacking and time.monotonic() < deadline:
            lacking = {name: expr for name, expr in lacking.items() if not self.prometheus.now(expr)}
            time.sleep(0.2)
        for name, expr in lacking.items():
            with self.subTest(name, query=expr):
                self.fail("no data")

    def test_every_query_of_every_panel_returns_data(self):
        values = {"namespace": "watching", "job": "watched", "__rate_interval": WINDOW}
        queries = {}
        for path in sorted(DASHBOARDS.glob("*.json")):
            for panel in json.loads(path.read_text())["panels"]:
                for target in panel["targets"]:
                    name = f"{path.stem}: {panel['title']}: {target['refId']}"
                    queries[name] = promql.substitute(target["expr"], values)
        self.assertGreater(len(queries), 64)
        self.expect_data(queries)

    def test_every_variable_finds_its_values(self):
        for path in sorted(DASHBOARDS.glob("*.json")):
            for variable in json.loads(path.read_text())["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()
                found = self.prometheus.label_values(label, promql.substitute(selector, {"namespace": ".*"}))
                with self.subTest(dashboard=path.stem, variable=variable["name"]):
                    self.assertEqual(found, ["watched" if label == "job" else "watching"])

    def rules(self):
        for group in self.prometheus.ask("rules")["groups"]:
            yield from group["rules"]

    def test_every_rule_is_loaded_and_can_be_evaluated(self):
        names = re.findall(r"- (?:alert|record): (\S+)", RULES.read_text())
        self.assertCountEqual([rule["name"] for rule in self.rules()], names)
        await_true("evaluation", lambda: all(rule["health"] != "unknown" for rule in self.rules()))
        self.assertEqual([(rule["name"], rule.get("lastError")) for rule in self.rules() if rule["health"] != "ok"], [])

    def test_every_series_that_a_rule_reads_is_there(self):
        self.expect_data({f"{rule['name']}: {selector}": selector
                          for rule in self.rules() for selector in promql.selectors(rule["query"])})

    def test_every_recorded_series_is_there(self):
        self.expect_data({rule["name"]: rule["name"] for rule in self.rules() if rule["type"] == "recording"})

    def test_no_alert_fires_on_a_healthy_cluster(self):
        self.assertEqual([alert["labels"] for alert in self.prometheus.ask("alerts")["alerts"]
                          if alert["state"] == "firing"], [])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if missing():
        print(f"skipped: not installed: {', '.join(missing())}")
        sys.exit(77)
    BINARIES = sys.argv.pop()
    unittest.main()
