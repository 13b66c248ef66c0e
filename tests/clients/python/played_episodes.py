"""Plays episodes of environments through gRPC, like workers."""

import logging
import unittest

import freshet
import grpc
from freshet.env.v1 import env_service_pb2 as env_pb
from freshet.env.v1 import env_service_pb2_grpc

SECONDS = 60.0


class EpisodesTest(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def stub(self, environment, **options):
        server = freshet.EnvironmentServer(environment, "127.0.0.1:0", **options).start()
        self.addCleanup(server.stop, 0.0)
        channel = grpc.insecure_channel(server.address)
        self.addCleanup(channel.close)
        return env_service_pb2_grpc.EnvServiceStub(channel)

    def play(self, environment, *actions, seed=7, name="", **options):
        """The replies to a reset and to the actions."""
        reset = env_pb.Reset(environment=name, seed=seed, options=options)
        requests = [env_pb.EpisodeRequest(reset=reset)]
        requests += [env_pb.EpisodeRequest(step=env_pb.Step(action=action)) for action in actions]
        return list(self.stub(environment).Episode(iter(requests), timeout=SECONDS))

    def error_of(self, environment, *actions, **options):
        with self.assertRaises(grpc.RpcError) as caught:
            self.play(environment, *actions, **options)
        return caught.exception.code(), caught.exception.details()
