"""Metrics and probes of reward and environment servers, and the certificates that they renew."""

import contextlib
import http.client
import logging
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import unittest

import freshet
import grpc
from freshet.env.v1 import env_service_pb2 as env_pb
from freshet.env.v1 import env_service_pb2_grpc
from freshet.exposition import Counter, Histogram, ProbeServer, text_of
from freshet.reward.v1 import reward_service_pb2 as reward_pb
from freshet.reward.v1 import reward_service_pb2_grpc

SECONDS = 60.0


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class TextTest(unittest.TestCase):
    def test_values_have_labels_and_a_histogram_has_sums_of_its_buckets(self):
        count = Counter("freshet_a_total", "What.", "name")
        count.add('a"\\\n')
        count.add("b", amount=2)
        times = Histogram("freshet_b_seconds", "How long.", (1, 10), "name")
        for value in (0.5, 1, 2, 60):
            times.observe(value, "x")
        self.assertEqual(text_of([count, times]).splitlines(), [
            "# HELP freshet_a_total What.",
            "# TYPE freshet_a_total counter",
            r'freshet_a_total{name="a\"\\\n"} 1.0',
            'freshet_a_total{name="b"} 2.0',
            "# HELP freshet_b_seconds How long.",
            "# TYPE freshet_b_seconds histogram",
            'freshet_b_seconds_bucket{name="x",le="1"} 2',
            'freshet_b_seconds_bucket{name="x",le="10"} 3',
            'freshet_b_seconds_bucket{name="x",le="+Inf"} 4',
            'freshet_b_seconds_sum{name="x"} 63.5',
            'freshet_b_seconds_count{name="x"} 4',
        ])


class ProbesTest(unittest.TestCase):
    def test_it_answers_probes_and_refuses_the_rest(self):
        why = [""]
        with ProbeServer("127.0.0.1:0", [], lambda: why[0]) as server:
            self.assertEqual([get(server.address, path)[0] for path in ("/healthz", "/readyz", "/metrics", "/x")],
                             [200, 200, 200, 404])
            why[0] = "draining"
            self.assertEqual([get(server.address, path) for path in ("/healthz", "/readyz")],
                             [(200, "ok\n"), (503, "draining\n")])
            for request, status in ((b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", b"414"),
                                    (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
                                    (b"POST /metrics HTTP/1.1\r\n\r\n", b"501"), (b"\0\xff\r\n\r\n", b"400")):
                host, port = server.address.split(":")
                with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
                    connection.sendall(request)
                    self.assertIn(status, connection.recv(200), request[:30])
            self.assertEqual(get(server.address, "/healthz")[0], 200)

    def test_an_address_that_is_none_is_refused(self):
        for address in ("127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", ""):
            with self.assertRaises(ValueError):
                ProbeServer(address, [])
        with ProbeServer("127.0.0.1:0", []) as server, self.assertRaisesRegex(OSError, server.address):
            ProbeServer(server.address, [])


class Steps:
    """Ends after the seed's number of turns; a turn may raise, or have no room."""

    def reset(self, seed, options):
        self.left = seed
        return "", {}

    def step(self, action):
        if action == "raise":
            raise KeyError("no such move")
        if action == "full":
            raise freshet.EnvironmentFull("another time")
        self.left -= 1
        return "", 1.0, self.left == 0 and action != "cut", action == "cut", {}


def reset(seed):
    return env_pb.EpisodeRequest(reset=env_pb.Reset(seed=seed))


def act(action=""):
    return env_pb.EpisodeRequest(step=env_pb.Step(action=action))


class CountsTest(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def test_an_environment_server_counts_episodes_by_their_end(self):
        with freshet.EnvironmentServer(Steps, "127.0.0.1:0", max_episodes=3) as server:
            with grpc.insecure_channel(server.address) as channel:
                stub = env_service_pb2_grpc.EnvServiceStub(channel)
                for requests in ([reset(2), act(), act(), reset(1), act("cut")], [reset(1), act("raise")],
                                 [reset(1), act("full")], [reset(9), act(), reset(9)]):
                    with contextlib.suppress(grpc.RpcError):
                        list(stub.Episode(iter(requests), timeout=SECONDS))
            shown = text_of(server.metrics)
        for outcome, count in (("terminated", 1), ("truncated", 1), ("failed", 1), ("abandoned", 2)):
            self.assertIn(f'freshet_episodes_total{{environment="Steps",outcome="{outcome}"}} {count}.0\n', shown)
        for line in ('freshet_episode_turns_sum{environment="Steps"} 5.0',  # 2 + 1 + 1 + 1 + 0
                     'freshet_environment_step_seconds_count{environment="Steps"} 12', "freshet_episodes_open 0.0",
                     'freshet_queue_entries{queue="episodes"} 0.0', 'freshet_queue_bound_entries{queue="episodes"} 3.0'):
            self.assertIn(line + "\n", shown)

    def test_a_reward_server_counts_scores_by_outcome(self):
        def slow_or_right(prompt, completion):
            if completion == "slow":
                raise freshet.rewards.RewardTimeout("slow")
            return float(completion)

        with freshet.RewardServer({"f": slow_or_right}, "127.0.0.1:0") as server:
            with grpc.insecure_channel(server.address) as channel:
                stub = reward_service_pb2_grpc.RewardServiceStub(channel)
                items = [reward_pb.ScoreItem(completion=text) for text in ("1", "0", "x", "slow")]
                stub.Score(reward_pb.ScoreRequest(items=items), timeout=SECONDS)
            shown = text_of(server.metrics)
        for outcome, count in (("ok", 2), ("infra_error", 1), ("timeout", 1)):
            self.assertIn(f'freshet_reward_function_scores_total{{function="f",outcome="{outcome}"}} {count}.0\n', shown)
        self.assertIn('freshet_reward_function_seconds_count{function="f"} 4\n', shown)


@unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
class CertificatesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.files = {"cert": str(self.folder / "cert"), "key": str(self.folder / "key")}

    def renew(self):
        """The new certificate, which is its own authority."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", self.files["key"], "-out", self.files["cert"]], check=True, capture_output=True)
        return (self.folder / "cert").read_text()

    def test_renewed_certificates_are_served_without_a_restart(self):
        def served(address):
            host, port = address.split(":")
            return ssl.get_server_certificate((host, int(port)), timeout=SECONDS)

        first = self.renew()
        with freshet.EnvironmentServer(Steps, "127.0.0.1:0", **self.files) as server:
            self.assertEqual(served(server.address), first)
            second = self.renew()
            self.assertEqual(served(server.address), second)
            (self.folder / "key").unlink()  # keeps the last ones
            self.assertEqual(served(server.address), second)

    def test_callers_need_a_certificate_of_the_authority_that_is_given(self):
        def listed(address, **identity):
            root = (self.folder / "cert").read_bytes()
            credentials = grpc.ssl_channel_credentials(root, **identity)
            with grpc.secure_channel(address, credentials,
                                     options=[("grpc.ssl_target_name_override", "localhost")]) as channel:
                stub = env_service_pb2_grpc.EnvServiceStub(channel)
                return len(stub.ListEnvironments(env_pb.ListEnvironmentsRequest(), timeout=SECONDS).environments)

        self.renew()
        with freshet.EnvironmentServer(Steps, "127.0.0.1:0", ca=self.files["cert"], **self.files) as server:
            with self.assertRaises(grpc.RpcError) as caught:
                listed(server.address)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            identity = {"private_key": (self.folder / "key").read_bytes(),
                        "certificate_chain": (self.folder / "cert").read_bytes()}
            self.assertEqual(listed(server.address, **identity), 1)


if __name__ == "__main__":
    unittest.main()
