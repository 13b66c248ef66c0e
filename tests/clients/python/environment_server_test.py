"""The file of environments, and episodes that only wait."""

import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import grpc
from freshet import EnvironmentServer, environment_server
from freshet.env.v1 import env_service_pb2 as env_pb
from played_episodes import SECONDS, EpisodesTest


class FileTest(EpisodesTest):
    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "mine.py").write_text(
                "class Mine:\n"
                "    '''Says what it is.'''\n"
                "    def reset(self, seed, options): return 'mine', {}\n")
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
                          ("a: {python: 'FOLDER/mine.py:X'}", "has no X")):
            with self.subTest(text):
                with self.assertRaises(ValueError) as caught:
                    self.load(text)
                self.assertIn(why, str(caught.exception))


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
