#!/usr/bin/env python3
"""Unit tests of the chart checks, without helm and network."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_chart  # noqa: E402
import schemas  # noqa: E402


class ConvertTest(unittest.TestCase):
    def test_an_object_takes_no_keys_but_its_own(self):
        schema = schemas.convert({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}})
        self.assertIs(schema["additionalProperties"], False)
        self.assertIs(schema["properties"]["a"]["additionalProperties"], False)

    def test_maps_stay_open(self):
        schema = schemas.convert({"type": "object", "additionalProperties": {"type": "string"}})
        self.assertEqual(schema, {"type": "object", "additionalProperties": {"type": "string"}})
        kept = schemas.convert({"properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": True})
        self.assertNotIn("additionalProperties", kept)

    def test_conditions_name_some_properties_and_forbid_none(self):
        schema = schemas.convert({"properties": {"a": {}, "b": {}}, "anyOf": [{"properties": {"a": {"enum": [1]}}}]})
        self.assertEqual(schema["anyOf"], [{"properties": {"a": {"enum": [1]}}}])

    def test_properties_may_be_called_like_keywords(self):
        schema = schemas.convert({"properties": {"default": {"type": "string"}, "format": {"type": "integer"},
                                                 "properties": {"type": "string"}}})
        self.assertEqual(set(schema["properties"]), {"default", "format", "properties"})

    def test_what_draft_7_does_not_know_goes(self):
        schema = schemas.convert({"type": "string", "nullable": True, "format": "int32", "default": "", "description": "x",
                                  "x-kubernetes-validations": []})
        self.assertEqual(schema, {"type": ["string", "null"]})
        self.assertEqual(schemas.convert({"x-kubernetes-int-or-string": True, "type": "string"}),
                         {"anyOf": [{"type": "integer"}, {"type": "string"}]})


class DocumentTest(unittest.TestCase):
    def test_a_kind_of_kubernetes_brings_what_it_refers_to(self):
        document = {"components": {"schemas": {
            "v1.Pod": {"properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/v1.Spec"}]}, "kind": {"type": "string"}},
                       "x-kubernetes-group-version-kind": [{"group": "", "kind": "Pod", "version": "v1"}]},
            "v1.Spec": {"properties": {"next": {"$ref": "#/components/schemas/v1.Deep"}}},
            "v1.Deep": {"type": "string"}, "v1.Other": {"type": "string"},
            "v1.Options": {"x-kubernetes-group-version-kind": [{"group": "a", "kind": "O", "version": "v1"},
                                                               {"group": "b", "kind": "O", "version": "v1"}]}}}}
        made = dict(schemas.of_openapi(document))
        self.assertEqual(set(made), {"pod-v1.json"})
        self.assertEqual(set(made["pod-v1.json"]["definitions"]), {"v1.Spec", "v1.Deep"})
        self.assertEqual(made["pod-v1.json"]["properties"]["spec"], {"allOf": [{"$ref": "#/definitions/v1.Spec"}]})
        self.assertIs(made["pod-v1.json"]["definitions"]["v1.Spec"]["additionalProperties"], False)
        self.assertEqual(made["pod-v1.json"]["properties"]["apiVersion"], {"enum": ["v1"]})

    def test_a_custom_resource_has_a_file_for_each_version(self):
        crd = {"spec": {"group": "monitoring.coreos.com", "names": {"kind": "PodMonitor"}, "versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {"a": {}}}}}}},
            {"name": "v2", "schema": {"openAPIV3Schema": {"properties": {}}}}]}}
        made = dict(schemas.of_crd(crd))
        self.assertEqual(set(made), {"podmonitor-monitoring-v1.json", "podmonitor-monitoring-v2.json"})
        self.assertEqual(made["podmonitor-monitoring-v1.json"]["properties"]["apiVersion"],
                         {"enum": ["monitoring.coreos.com/v1"]})


class KindsTest(unittest.TestCase):
    def test_reads_the_kinds_of_documents_and_of_templates(self):
        self.assertEqual(check_chart.kinds_of("kind: Pod\n---\nkind: \"Role\"\nroleRef:\n  kind: Other\n"), {"Pod", "Role"})
        self.assertEqual(check_chart.kinds_of_templates(["kind: Pod\n", "kind: {{ $cfg.kind }}\n", "  kind: {{ $x.kind }}\n"]),
                         {"Pod", "Deployment", "LeaderWorkerSet"})

    def test_the_charts_own_kinds_are_found(self):
        texts = []
        for folder, _, names in os.walk(os.path.join(check_chart.CHART, "templates")):
            for name in names:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    texts.append(file.read())
        self.assertGreaterEqual(check_chart.kinds_of_templates(texts),
                                {"Certificate", "Deployment", "HorizontalPodAutoscaler", "LeaderWorkerSet", "NetworkPolicy",
                                 "Pod", "PodDisruptionBudget", "PodMonitor", "PrometheusRule", "ScaledObject",
                                 "ServiceMonitor", "StatefulSet", "TriggerAuthentication"})


class ValuesTest(unittest.TestCase):
    def test_every_value_or_a_key_around_it_has_a_comment(self):
        described, previous = None, ""
        with open(os.path.join(check_chart.CHART, "values.yaml"), encoding="utf-8") as values:
            for line in values:
                key = re.match(r"( *)\w+:( .+)?$", line)
                if key and (described is None or len(key[1]) <= described):
                    described = len(key[1]) if "# -- " in previous else None
                    self.assertFalse(key[2] and described is None, line)
                previous = line


if __name__ == "__main__":
    unittest.main()
