#!/usr/bin/env python3
"""Creates the JSON schemas for kubeconform from the schemas that the projects publish.

    schemas.py [--folder DIR]      prints the folder with the schemas

Kubernetes' kinds come from its OpenAPI documents, the others from the CRDs of prometheus-operator, KEDA and
cert-manager. All are in Go modules, which the go command fetches and verifies. Files are named by kubeconform's
template "{{ .ResourceKind }}{{ .KindSuffix }}.json". Schemas reject unknown keys. They are created once per set of
versions, in a few seconds.
"""
import argparse
import dataclasses
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "k8s"))
import tools  # noqa: E402

REFERENCE = "#/components/schemas/"
FORMAT = 1  # version of the output; changing it recreates all files


@dataclasses.dataclass(frozen=True)
class Source:
    module: str
    version: str
    files: tuple  # glob patterns in the module


KUBERNETES = Source("k8s.io/kubernetes", f"v1.{tools.KUBERNETES_MINOR}.10", tuple(
    f"api/openapi-spec/v3/{name}_openapi.json" for name in (
        "api__v1", "apis__apps__v1", "apis__autoscaling__v2", "apis__networking.k8s.io__v1", "apis__policy__v1",
        "apis__rbac.authorization.k8s.io__v1")))
CRDS = (
    Source("github.com/prometheus-operator/prometheus-operator", "v0.85.0", tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{name}.yaml"
        for name in ("podmonitors", "servicemonitors", "prometheusrules"))),
    Source("github.com/kedacore/keda/v2", "v2.21.0", tuple(
        f"config/crd/bases/keda.sh_{name}.yaml" for name in ("scaledobjects", "triggerauthentications"))),
    Source("github.com/cert-manager/cert-manager", "v1.21.2", ("deploy/crds/cert-manager.io_certificates.yaml",)),
)
SOURCES = (KUBERNETES, *CRDS)


def convert(node, closed=True):
    """Converts an OpenAPI schema of Kubernetes to JSON schema draft 7. If `closed`, objects reject unknown keys."""
    out = {}
    for key, value in node.items():
        if key == "$ref":
            out[key] = value.replace(REFERENCE, "#/definitions/")
        elif key == "properties":
            out[key] = {name: convert(schema, closed) for name, schema in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = convert(value, closed)
        elif key == "not":
            out[key] = convert(value, False)
        elif key in ("allOf", "anyOf", "oneOf"):
            # These conditions name only some of the properties, so they must stay open.
            out[key] = [convert(schema, False) for schema in value]
        elif key not in ("default", "description", "format", "nullable") and not key.startswith("x-kubernetes-"):
            out[key] = value
    if node.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
        out.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if node.get("nullable") and "type" in out:
        out["type"] = [out["type"], "null"]
    if closed and "properties" in out and not node.get("x-kubernetes-preserve-unknown-fields"):
        out.setdefault("additionalProperties", False)
    return out


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value.rsplit("/", 1)[1]
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def file_name(group, version, kind):
    """Returns the file name that kubeconform looks up."""
    return "-".join(part for part in (kind, group.split(".")[0], version) if part).lower() + ".json"


def fixed(schema, group, version, kind):
    """Returns the schema of a kind with its apiVersion and kind fixed."""
    schema["properties"] = {**schema.get("properties", {}), "kind": {"enum": [kind]},
                            "apiVersion": {"enum": [f"{group}/{version}" if group else version]}}
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    return schema


def of_openapi(document):
    """Yields (file name, schema) of the kinds in an OpenAPI document."""
    definitions = {name: convert(schema) for name, schema in document["components"]["schemas"].items()}
    for name, schema in document["components"]["schemas"].items():
        kinds = schema.get("x-kubernetes-group-version-kind", [])
        if len(kinds) != 1:
            continue  # no kind, or one that every group has
        needed, todo = {}, list(references(definitions[name]))
        while todo:
            one = todo.pop()
            if one not in needed:
                needed[one] = definitions[one]
                todo.extend(references(definitions[one]))
        group, version, kind = (kinds[0][key] for key in ("group", "version", "kind"))
        schema = fixed({**definitions[name], "definitions": needed}, group, version, kind)
        yield file_name(group, version, kind), schema


def of_crd(crd):
    """Yields (file name, schema) of the versions of a custom resource."""
    group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
    for version in crd["spec"]["versions"]:
        schema = convert(version["schema"]["openAPIV3Schema"])
        yield file_name(group, version["name"], kind), fixed(schema, group, version["name"], kind)


def fetch(go, source, cache):
    """Fetches a module and returns its folder."""
    done = subprocess.run([go, "mod", "download", "-json", f"{source.module}@{source.version}"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, cwd=cache,
                          env={**os.environ, "GOMODCACHE": cache, "GOFLAGS": "-modcacherw"})
    answer = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
    if "Dir" not in answer:
        sys.exit(f"schemas: {source.module} {source.version}: {answer.get('Error') or done.stderr.strip()[-500:]}")
    return answer["Dir"]


def write_all(go, folder):
    try:
        import yaml  # only needed for CRDs
    except ImportError:
        sys.exit("schemas: the CRDs are YAML: apt install python3-yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    cache = folder + ".mod"
    os.makedirs(cache, exist_ok=True)
    os.makedirs(folder, exist_ok=True)
    for source in SOURCES:
        tools.say(f"schemas of {source.module} {source.version}")
        root = fetch(go, source, cache)
        for path in [path for pattern in source.files for path in glob.glob(os.path.join(root, pattern)) or [None]]:
            if path is None:
                sys.exit(f"schemas: {source.module} {source.version} no longer has the files {', '.join(source.files)}")
            with open(path, encoding="utf-8") as file:
                made = of_openapi(json.load(file)) if path.endswith(".json") else of_crd(yaml.load(file, loader))
            for name, schema in made:
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    json.dump(schema, file)
    shutil.rmtree(cache)


def make(base):
    """Returns the folder with the schemas below `base`. Creates them if missing."""
    key = hashlib.sha256(repr((FORMAT, SOURCES)).encode()).hexdigest()[:12]
    folder = os.path.join(os.path.abspath(base), key)
    if not os.path.exists(folder):
        shutil.rmtree(folder + ".new", ignore_errors=True)
        write_all(shutil.which("go") or sys.exit("schemas: go is not installed"), folder + ".new")
        os.replace(folder + ".new", folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description="Creates the schemas for kubeconform.")
    parser.add_argument("--folder", default=os.path.join(tools.CACHE, "schemas"), help="folder for the schemas")
    print(make(parser.parse_args().folder))


if __name__ == "__main__":
    main()
