#!/usr/bin/env python3
"""Unit tests of the Kubernetes test and of the image build, without a cluster or a daemon."""
import contextlib
import io
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "images"))
import assemble_root  # noqa: E402
import build_images  # noqa: E402
import images  # noqa: E402
import pod_chaos  # noqa: E402
import report  # noqa: E402
import tools  # noqa: E402
from kube import Failure, wait_for  # noqa: E402

MANIFESTS = """
kind: Deployment
spec:
  containers:
    - name: a
      image: "localhost/freshet-compute:0.1.0"
    - image: localhost/freshet-control:0.1.0
  initContainers:
    - {name: b}
      image: localhost/freshet-control:0.1.0
    # image: localhost/commented:1
  imagePullPolicy: IfNotPresent
"""


class ImagesTest(unittest.TestCase):
    def test_names_every_image_once(self):
        self.assertEqual(images.images_of(MANIFESTS),
                         ["localhost/freshet-compute:0.1.0", "localhost/freshet-control:0.1.0"])

    def test_knows_the_target_by_the_repository(self):
        for image, target in [("localhost/freshet-control:0.1.0", "control"), ("reg:5000/x/freshet-compute", "compute"),
                              ("a.b/freshet-compute-cuda:1@sha256:" + "0" * 64, "compute-cuda"),
                              ("a.b/freshet/compute:1", "compute"), ("docker.io/library/redis:7", None),
                              ("localhost/mycontrol:1", None)]:
            self.assertEqual(images.target_of(image), target, image)

    def test_fills_in_the_loader_without_a_shell(self):
        self.assertEqual(images.loader_command("kind load image-archive {archive} --name 'a b'", "i:1", "/x y.tar"),
                         ["kind", "load", "image-archive", "/x y.tar", "--name", "a b"])
        self.assertEqual(images.loader_command("load {image} {archive}", "i:$(id)", "/a.tar"), ["load", "i:$(id)", "/a.tar"])
        with self.assertRaises(Failure):
            images.loader_command("kind load", "i:1", "/a.tar")

    def test_says_how_to_make_an_archive_that_is_missing(self):
        with self.assertRaisesRegex(Failure, r"\./dev image --target control --archive /nowhere"):
            images.load_images(["localhost/freshet-control:1"], "/nowhere", "load {archive}", lambda text: None)


class PlanTest(unittest.TestCase):
    def test_every_role_has_its_turn_before_any_has_a_second(self):
        for seed in range(50):
            deletions = pod_chaos.plan(seed, pod_chaos.ROLES, 300, 20)
            self.assertEqual([second for second, _, _, _ in deletions], list(range(20, 301, 20)))
            roles = [role for _, role, _, _ in deletions]
            self.assertEqual(sorted(roles[:6]), sorted(pod_chaos.ROLES))
            self.assertEqual(sorted(roles[6:12]), sorted(pod_chaos.ROLES))

    def test_the_seed_decides(self):
        self.assertEqual(pod_chaos.plan(7, pod_chaos.ROLES, 300, 20), pod_chaos.plan(7, pod_chaos.ROLES, 300, 20))
        self.assertNotEqual(pod_chaos.plan(7, pod_chaos.ROLES, 300, 20), pod_chaos.plan(8, pod_chaos.ROLES, 300, 20))


class WaitTest(unittest.TestCase):
    def test_returns_what_it_waited_for(self):
        answers = iter([None, 0, "there"])
        self.assertEqual(wait_for("it", 5, lambda: next(answers), every_s=0), "there")

    def test_names_what_did_not_come_and_the_last_error(self):
        def look():
            raise Failure("refused")
        with self.assertRaisesRegex(Failure, "^pods: not within 0 s; last: refused$"):
            wait_for("pods", 0, look, every_s=0)


class ReportTest(unittest.TestCase):
    def test_counts_what_holds_and_what_does_not(self):
        def fails(error):
            raise error
        with contextlib.redirect_stdout(io.StringIO()) as out:
            found = report.Report()
            self.assertTrue(found.check("a", lambda: "seen"))
            self.assertFalse(found.check("b", lambda: fails(Failure("gone"))))
            self.assertFalse(found.check("c", lambda: fails(KeyError("metricValues"))))
        self.assertEqual(found.counts(), (1, 2))
        self.assertRegex(out.getvalue(), r"ok     a \(0\.0 s\): seen\nFAILED b .*: gone\nFAILED c .*: KeyError: 'metricValues'")


class ToolsTest(unittest.TestCase):
    def test_reads_gos_version(self):
        self.assertEqual(tools.version_of("go version go1.19.8 linux/amd64"), (1, 19))
        self.assertIsNone(tools.version_of("gccgo"))

    def test_carries_a_modules_own_replacements(self):
        self.assertIn("replace github.com/vmware-labs/yaml-jsonpath v0.3.2 => ",
                      tools.go_mod(tools.TOOLS["helm-unittest"], "helm-unittest"))


class ImageBuildTest(unittest.TestCase):
    def test_an_image_over_its_bound_is_named(self):
        rows = [{"target": "control", "image": "c:1", "bytes": 201_000_000},
                {"target": "compute", "image": "d:1", "bytes": 900_000_000}]
        self.assertEqual(build_images.too_large(rows), ["c:1 has 201 MB, its bound is 200 MB"])

    def test_the_dockerfile_defaults_to_the_projects_version(self):
        with open(os.path.join(build_images.REPOSITORY, "Dockerfile"), encoding="utf-8") as file:
            dockerfile = file.read()
        defaults = [line.split("=")[1].strip() for line in dockerfile.splitlines() if line.startswith("ARG VERSION=")]
        self.assertEqual(set(defaults), {build_images.project_version()})
        for stage in dockerfile.split("\nFROM ")[1:]:
            # Some builders do not inherit build arguments from the base stage.
            self.assertEqual("${VERSION}" in stage, "\nARG VERSION=" in stage, stage.splitlines()[0])
        for target in build_images.TARGETS:
            self.assertRegex(dockerfile, f"\nFROM (scratch|\\$\\{{BASE\\}}) AS {target}\n")
        self.assertEqual(dockerfile.count(f"USER {assemble_root.USER_ID}:{assemble_root.USER_ID}\n"), len(build_images.TARGETS))

    def test_patterns_match_whole_names(self):
        self.assertTrue(assemble_root.matches("libcudnn_ops.so.9", assemble_root.OPENED_BY_NAME))
        self.assertFalse(assemble_root.matches("libcudnn.so.9", assemble_root.OPENED_BY_NAME))
        self.assertTrue(assemble_root.matches("nvshmem_transport_ibrc.so.4", assemble_root.LEFT_OUT))


if __name__ == "__main__":
    unittest.main()
