"""The file of environments, and episodes that only wait."""

import asyncio
import importlib.util
import logging
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import grpc
from freshet import EnvironmentServer, environment_server
from freshet.env.v1 import env_service_pb2 as env_pb
from freshet.env.v1 import env_service_pb2_grpc
from freshet.environments import STUCK_EXIT_CODE
from freshet.episode_places import Places
from played_episodes import SECONDS, EpisodesTest


class FileTest(EpisodesTest):
    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "mine.py").write_text(
                "class Mine:\n"
                "    '''Says what it is.'''\n"
                "    def reset(self, seed, options): return 'mine', {}\n")
            (path / "broken.py").write_text("raise SystemExit(3)")
            (path / "environments.yaml").write_text(text.replace("FOLDER", folder))
            return environment_server.load(str(path / "environments.yaml"))

    def test_jobs_choose_by_name(self):
        kinds = self.load('mine: {python: "FOLDER/mine.py:Mine"}\ntools: {mcp: [none], max_calls: 3}')
        self.assertEqual(self.play(kinds, name="mine")[0].observation, "mine")
        code, details = self.error_of(kinds)
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("mine, tools", details)
        listed = self.stub(kinds).ListEnvironments(env_pb.ListEnvironmentsRequest(), timeout=SECONDS)
        self.assertEqual([(info.name, info.description) for info in listed.environments],
                         [("mine", "Says what it is."), ("tools", "The tools of an MCP server")])

    def test_a_bad_file_is_refused_by_file_and_entry(self):
        for text, why in (("", "must map names"), ("[1]", "must map names"), ("a: {", "environments.yaml"),
                          ("a: 3", "yaml: a: give one of"), ("a: {mcp: x, python: y}", "give one of"),
                          ("a: {mcp: [x], colour: red}", "colour"), ("a: {mcp: [x], tool_calls: y}", "tool_calls"),
                          ("a: {python: x}", "FILE:CLASS"), ("a: {python: '/none.py:X'}", "no such Python file"),
                          ("a: {python: 'FOLDER/mine.py:X'}", "has no class or function X"),
                          ("a: {python: 'FOLDER/broken.py:X'}", "broken.py cannot be loaded: SystemExit: 3"),
                          ("a: {python: 5}", "yaml: a: python is of type int; give a text"),
                          ("a: {mcp: 5}", "mcp is of type int; give a text or a list"),
                          ("a: {mcp: [x], env: [secret]}", "env is of type list; give a map"),
                          ("a: {mcp: [x, --token, secret, 3]}", "mcp[3] is of type int; give"),
                          ("a: {openenv: 'http://me:secret@x'}", "openenv is a URL with a user, query or fragment; give"),
                          ("a: {openenv: 'me:secret@x'}", "openenv is no URL of a server; give"),
                          ("a: {mcp: [x], costs: [1]}", "costs is of type list; give a map"),
                          ("a: {mcp: [x], shared: 'no'}", "shared is of type str; give true or false"),
                          ("a: {mcp: [x], seconds: '3'}", "seconds is of type str; give a number"),
                          ("a: {mcp: [x], max_calls: 1.5}", "max_calls is of type float; give a whole number"),
                          ("a: {mcp: [x], max_calls: true}", "max_calls is of type bool; give a whole number"),
                          ("a: {openenv: 'http://x', seconds: 0}", "seconds is 0; give a number above 0"),
                          ("a: {openenv: 'http://x:99999'}", "openenv has no valid port; give"),
                          ("a: {openenv: 'http://[secret'}", "openenv is no URL of a server; give"),
                          ("a: {mcp: 'http://me:secret'}", "mcp is a URL without a valid host and port; give"),
                          ("a: {mcp: 'http://[secret'}", "mcp is a URL without a valid host and port; give"),
                          ("a: {openenv: 'http://me:secret'}", "openenv has no valid port; give"),
                          ("a: {mcp: [x], max_answer_bytes: 0}", "max_answer_bytes must be positive"),
                          ("a: {mcp: [x], env: {KEY: *secret}}", "yaml:1:26: found undefined alias '...'"),
                          ("a: {mcp: [x], env: {KEY: !secret x}}", "yaml:1:26: could not determine a constructor"),
                          ("[a", "yaml:1:3: while parsing a flow sequence: expected ',' or ']', but got '<stream end>'"),
                          ("a: !<%27%22secret> x", "yaml:1:4: could not determine a constructor for the tag '...'"),
                          ("a: {mcp: [x],\n  env: {KEY: 'secret}}", "yaml:2:23: while scanning a quoted scalar: found"),
                          ("a: {mcp: [x]}\nb: secret: x", "yaml:2:10: mapping values are not allowed here"),
                          ("a: secret\x07", "yaml:1:10: special characters are not allowed"),
                          ("a: {mcp: [x], seconds: !!float secret}", "yaml:1:24: a value does not fit its type"),
                          ("a: 2020-13-45", "yaml:1:4: a value does not fit its type; quote it"),
                          ("[" * 100_000, "environments.yaml: lists and maps are nested too deep")):
            with self.subTest(text):
                with self.assertRaises(ValueError) as caught:
                    self.load(text)
                self.assertIn(why, str(caught.exception))
                self.assertNotIn("secret", str(caught.exception))

    @unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
    def test_an_environment_of_gymnasium_that_cannot_be_made_is_refused(self):
        for entry in ("{gymnasium: NoSuch-v1}", "{gymnasium: FrozenLake-v1, arguments: {colour: red}}"):
            with self.subTest(entry), self.assertRaisesRegex(ValueError, "yaml: a: gymnasium: .* cannot be made"):
                self.load(f"a: {entry}")


class PlacesTest(unittest.TestCase):
    def test_a_call_hangs_once_its_caller_has_been_gone_for_long(self):
        now, hung = [0.0], []
        places = Places(8, 30.0, hung.append, lambda: now[0])
        lost, waits, idle = (places.take() for _ in range(3))
        idle.leave()
        with lost.call("lake", "step", "seed 7, row {}"), waits.call("lake", "step", "seed 8, row {}"):
            now[0] = 100.0
            self.assertEqual((places.open(), hung), (3, []))
            lost.leave()
            now[0] = 130.0
            self.assertEqual(places.open(), 3)
            now[0] = 131.0
            with self.assertLogs("freshet.environment", "ERROR") as logged:
                self.assertEqual(places.open(), 2)
            self.assertRegex(logged.output[0], r"environment lake: step hangs at .*:\d+ in .*, seed 7, row {}")
            self.assertEqual((places.open(), hung), (2, ["lake"]))
        places.give_back(lost)
        self.assertEqual(places.open(), 2)

    def test_hung_calls_hold_no_place_and_a_quarter_of_them_is_too_many(self):
        now = [0.0]
        places = Places(8, 30.0, clock=lambda: now[0])
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        taken = [places.take() for _ in range(8)]
        self.assertIsNone(places.take())
        with taken[0].call("lake", "reset", ""), taken[1].call("lake", "close", ""):
            taken[0].leave()
            taken[1].leave()
            now[0] = 300.0  # a close may take 10 times as long
            self.assertEqual(places.stuck(), "")
            taken.append(places.take())
            self.assertIsNotNone(taken[-1])
            self.assertIsNone(places.take())
            now[0] = 301.0
            self.assertEqual(places.stuck(), "hung calls: 2 (limit 2 for 8 places)")
        for place in taken:
            places.give_back(place)
        self.assertEqual((places.open(), places.stuck()), (0, ""))

    def test_one_hung_call_is_never_too_many(self):
        self.assertEqual([Places(number, 30.0).most_hung for number in (1, 4, 12)], [2, 2, 3])


class EndTest(unittest.TestCase):
    def serve(self, text, *flags):
        """A process that serves a class, its words about addresses, and a stub of `channel`."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        (path / "mine.py").write_text(text)
        (path / "environments.yaml").write_text(f'mine: {{python: "{path}/mine.py:Mine"}}')
        command = [sys.executable, "-m", "freshet.environment_server", str(path / "environments.yaml")]
        server = subprocess.Popen([*command, "--listen", "127.0.0.1:0", *flags],
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        addresses = [word.rstrip(";,") for word in server.stdout.readline().split() if ":" in word]
        self.channel = grpc.insecure_channel(addresses[0])
        self.addCleanup(self.channel.close)
        return server, addresses, env_service_pb2_grpc.EnvServiceStub(self.channel)

    def test_an_environment_that_hangs_does_not_keep_the_server(self):
        server, _, stub = self.serve(
            "import threading\n"
            "class Mine:\n"
            "    def reset(self, seed, options): print('hangs', flush=True); threading.Event().wait()\n",
            "--drain-seconds", "0", "--close-seconds", "0")
        episode = stub.Episode(iter([env_pb.EpisodeRequest(reset=env_pb.Reset())]), timeout=SECONDS)
        self.assertEqual(server.stdout.readline(), "hangs\n")
        server.terminate()
        self.assertEqual(server.wait(SECONDS), 0)
        episode.cancel()

    def test_too_many_hanging_calls_drain_and_end_the_process(self):
        server, (_, http_address), stub = self.serve(
            "import threading\n"
            "class Mine:\n"
            "    def reset(self, seed, options):\n"
            "        if seed: print('hangs', flush=True); threading.Event().wait()\n"
            "        return '', {}\n",
            "--max-episodes", "4", "--hung-seconds", "0", "--drain-seconds", "60", "--http-listen", "127.0.0.1:0")
        requests = queue.SimpleQueue()
        requests.put(env_pb.EpisodeRequest(reset=env_pb.Reset()))
        other = stub.Episode(iter(requests.get, None), timeout=SECONDS)
        next(other)
        for _ in range(2):
            hanging = stub.Episode(iter([env_pb.EpisodeRequest(reset=env_pb.Reset(seed=3))]), timeout=SECONDS)
            self.assertEqual(server.stdout.readline(), "hangs\n")
            hanging.cancel()
        end = time.monotonic() + SECONDS
        try:
            while time.monotonic() < end:
                urllib.request.urlopen(f"http://{http_address}/readyz", timeout=SECONDS).close()
            self.fail("the server is ready although calls hang")
        except urllib.error.HTTPError as error:
            self.assertIn("hung calls: 2 (limit 2 for 4 places)", error.read().decode())
        requests.put(None)
        self.assertEqual(list(other), [])  # ends as usual
        self.channel.close()  # an open one delays the server's end by seconds
        self.assertEqual(server.wait(SECONDS), STUCK_EXIT_CODE)
        said = server.stderr.read()
        self.assertIn("environment mine: reset hangs at ", said)
        self.assertIn("seed 3, row {}", said)
        self.assertIn("exit code 75, start it again", said.splitlines()[-1])

    def test_a_coroutine_that_blocks_the_event_loop_ends_the_process(self):
        server, _, stub = self.serve(
            "import threading\n"
            "class Mine:\n"
            "    async def reset(self, seed, options): threading.Event().wait()\n"
            "    async def step(self, action): pass\n",
            "--hung-seconds", "0.1", "--drain-seconds", "0")
        episode = stub.Episode(iter([env_pb.EpisodeRequest(reset=env_pb.Reset())]), timeout=SECONDS)
        self.assertEqual(server.wait(SECONDS), STUCK_EXIT_CODE)
        self.assertIn("blocks the shared event loop at ", server.stderr.read())
        episode.cancel()


class Waiting:
    """Answers once all episodes wait."""

    episodes = 2000
    waiting = 0
    go = None

    async def reset(self, seed, options):
        return "", {}

    async def step(self, action):
        Waiting.go = Waiting.go or asyncio.Event()
        Waiting.waiting += 1
        if Waiting.waiting == Waiting.episodes:
            Waiting.go.set()
        await Waiting.go.wait()
        return "", 1.0, True, False, {}


PLAY = """
import asyncio, os, sys, grpc
from freshet.env.v1 import env_service_pb2 as env_pb, env_service_pb2_grpc

async def one(stub):
    stream = stub.Episode(timeout=60)
    await stream.write(env_pb.EpisodeRequest(reset=env_pb.Reset()))
    await stream.read()
    await stream.write(env_pb.EpisodeRequest(step=env_pb.Step()))
    reply = await stream.read()
    await stream.done_writing()
    return reply.reward

async def play():
    async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
        stub = env_service_pb2_grpc.EnvServiceStub(channel)
        print(sum(await asyncio.gather(*(one(stub) for _ in range(int(sys.argv[2]))))), flush=True)
        os._exit(0)  # the end of an event loop of gRPC can hang

asyncio.run(play())
"""


class ManyEpisodesTest(unittest.TestCase):
    def test_thousands_of_episodes_wait_in_one_process(self):
        server = EnvironmentServer(Waiting, "127.0.0.1:0", max_episodes=Waiting.episodes).start()
        self.addCleanup(server.stop, 0.0)
        command = [sys.executable, "-c", PLAY, server.address, str(Waiting.episodes)]
        played = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=True,
                                stdout=subprocess.PIPE, text=True)
        self.assertEqual(float(played.stdout), Waiting.episodes)


if __name__ == "__main__":
    unittest.main()
