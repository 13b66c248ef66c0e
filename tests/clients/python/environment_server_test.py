"""The file of environments, and episodes that only wait."""

import asyncio
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import grpc
from freshet import EnvironmentServer, environment_server
from freshet.env.v1 import env_service_pb2 as env_pb
from freshet.env.v1 import env_service_pb2_grpc
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
                          ("a: {python: 5}", "yaml: a: python is '5'; give a text"),
                          ("a: {mcp: 5}", "mcp is '5'; give a text or a list"),
                          ("a: {mcp: [x], env: [1]}", "env is '[1]'; give a map"),
                          ("a: {mcp: [x], costs: [1]}", "costs is '[1]'; give a map"),
                          ("a: {mcp: [x], shared: 'no'}", "shared is 'no'; give true or false"),
                          ("a: {mcp: [x], seconds: '3'}", "seconds is '3'; give a number"),
                          ("a: {mcp: [x], max_calls: 1.5}", "max_calls is '1.5'; give a whole number"),
                          ("a: {mcp: [x], max_calls: true}", "max_calls is 'True'; give a whole number"),
                          ("a: {openenv: 'http://x', seconds: 0}", "seconds is 0; give a number above 0"),
                          ("a: {openenv: 'http://x:99999'}", "openenv is 'http://x:99999'"),
                          ("[" * 100_000, "environments.yaml")):
            with self.subTest(text):
                with self.assertRaises(ValueError) as caught:
                    self.load(text)
                self.assertIn(why, str(caught.exception))

    @unittest.skipUnless(importlib.util.find_spec("gymnasium"), "gymnasium is not installed")
    def test_an_environment_of_gymnasium_that_cannot_be_made_is_refused(self):
        for entry in ("{gymnasium: NoSuch-v1}", "{gymnasium: FrozenLake-v1, arguments: {colour: red}}"):
            with self.subTest(entry), self.assertRaisesRegex(ValueError, "yaml: a: gymnasium: .* cannot be made"):
                self.load(f"a: {entry}")


class EndTest(unittest.TestCase):
    def test_an_environment_that_hangs_does_not_keep_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "hanging.py").write_text(
                "import threading\n"
                "class Hanging:\n"
                "    def reset(self, seed, options): print('hangs', flush=True); threading.Event().wait()\n")
            (path / "environments.yaml").write_text(f'hanging: {{python: "{folder}/hanging.py:Hanging"}}')
            command = [sys.executable, "-m", "freshet.environment_server", str(path / "environments.yaml")]
            server = subprocess.Popen([*command, "--listen", "127.0.0.1:0", "--drain-seconds", "0"],
                                      env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                                      stdout=subprocess.PIPE, text=True)
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            self.addCleanup(server.stdout.close)
            address = server.stdout.readline().split()[2].rstrip(";,")
            with grpc.insecure_channel(address) as channel:
                stub = env_service_pb2_grpc.EnvServiceStub(channel)
                episode = stub.Episode(iter([env_pb.EpisodeRequest(reset=env_pb.Reset())]), timeout=SECONDS)
                self.assertEqual(server.stdout.readline(), "hangs\n")
                server.terminate()
                self.assertEqual(server.wait(SECONDS), 0)
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
