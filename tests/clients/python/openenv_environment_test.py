"""Environments of a server of openenv-core."""

import functools
import importlib.util
import json
import threading
import unittest
from socket import IPPROTO_TCP, TCP_CORK

import freshet
import grpc
from played_episodes import SECONDS, EpisodesTest

openenv_environment = functools.partial(freshet.openenv_environment, seconds=SECONDS)  # a busy machine is no failure

if importlib.util.find_spec("openenv"):
    import uvicorn
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

    class Say(Action):
        message: str

    class Heard(Observation):
        echo: str
        count: int = 0

    class Echo(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__()
            self._state = State()

        def reset(self, seed=None, episode_id=None, topic="nothing"):
            self._state = State(step_count=0)
            return Heard(echo=f"{topic} {seed}")

        def step(self, action):
            if action.message == "raise":
                raise RuntimeError("broken")
            self._state.step_count += 1
            size = 1 << 23 if action.message == "flood" else 1
            done = action.message == "end"
            return Heard(echo=action.message * size, count=self._state.step_count, reward=0.5, done=done)

        @property
        def state(self):
            return self._state


@unittest.skipUnless(importlib.util.find_spec("openenv"), "openenv-core is not installed")
class OpenEnvEnvironmentTest(EpisodesTest):
    def serve(self, sessions=64):
        """The address of a server."""
        app = create_fastapi_app(Echo, Say, Heard, max_concurrent_envs=sessions)
        config = uvicorn.Config(app, port=0, log_level="critical", ws_max_size=1 << 26)
        server = uvicorn.Server(config)
        socket = config.bind_socket()
        socket.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()

        def end():
            server.should_exit = server.force_exit = True
            thread.join(SECONDS)

        self.addCleanup(end)
        return f"http://127.0.0.1:{socket.getsockname()[1]}"

    def test_a_text_is_a_field_of_the_action(self):
        echo = openenv_environment(self.serve(), action="message", observation="echo", reset=["topic"])
        replies = self.play(echo, "a", "end", seed=3, topic="hens", answer="x")
        self.assertEqual([reply.observation for reply in replies], ["hens 3", "a", "end"])
        self.assertEqual([reply.reward for reply in replies], [0, 0.5, 0.5])
        self.assertEqual([reply.terminated for reply in replies], [False, False, True])

    def test_without_a_field_actions_and_observations_are_json(self):
        echo = openenv_environment(self.serve())
        replies = self.play(echo, json.dumps({"message": "a"}))
        self.assertEqual(json.loads(replies[1].observation), {"echo": "a", "count": 1})

    def test_an_action_that_is_none_is_explained_and_changes_nothing(self):
        echo = openenv_environment(self.serve(), observation="count")
        for action in ("a", "[1]", '{"text": "a"}', '{"message": 3}', "[" * 100_000):
            with self.subTest(action[:20]):
                _, wrong, right = self.play(echo, action, '{"message": "a"}')
                self.assertTrue(wrong.observation.startswith("invalid action: "), wrong.observation)
                self.assertEqual((wrong.reward, wrong.terminated, right.observation), (0, False, "1"))
                self.assertEqual((wrong.invalid, right.invalid), (True, False))

    def test_what_the_server_gets_wrong_is_an_infrastructure_error(self):
        echo = openenv_environment(self.serve(), action="message", observation="echo")
        for action, why in (("raise", "broken"), ("flood", "too big")):
            with self.subTest(action):
                code, details = self.error_of(echo, action)
                self.assertEqual(code, grpc.StatusCode.INTERNAL)
                self.assertIn(why, details)
        absent = openenv_environment(self.serve(), action="message", observation="text")
        self.assertIn("no field text", self.error_of(absent)[1])
        self.assertEqual(self.error_of(openenv_environment("http://127.0.0.1:9"))[0], grpc.StatusCode.INTERNAL)

    def test_a_server_that_lies_is_an_infrastructure_error(self):
        for answers, seconds, why in (
            ([["seen", "unasked"]], SECONDS, "an observation without a request"),
            ([["seen", {"type": "error", "data": {"code": "VALIDATION_ERROR", "message": "no"}}]], SECONDS,
             "an error without a request: no"),
            ([["seen"], [[1]]], SECONDS, "not an object"),
            ([["seen"], [{"type": "observation", "data": {"observation": {}, "done": "false"}}]], SECONDS,
             "done is 'false'"),
            ([[]], 0.05, "no answer within 0.05 s"),
        ):
            with self.subTest(why):
                echo = freshet.openenv_environment(self.serve_script(answers), action="message", seconds=seconds)
                code, details = self.error_of(echo, "a", "b")
                self.assertEqual(code, grpc.StatusCode.INTERNAL)
                self.assertIn(why, details)

    def serve_script(self, answers):
        """The address of a server that answers requests with these messages; a text: an observation of it."""
        from websockets.sync.server import serve

        def talk(socket):
            for _, messages in zip(socket, [*answers, []]):
                socket.socket.setsockopt(IPPROTO_TCP, TCP_CORK, 1)  # they arrive together
                for message in messages:
                    if isinstance(message, str):
                        message = {"type": "observation", "data": {"observation": {"echo": message}}}
                    socket.send(json.dumps(message))
                socket.socket.setsockopt(IPPROTO_TCP, TCP_CORK, 0)
            socket.recv()

        server = serve(talk, "127.0.0.1", 0)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.socket.getsockname()[1]}"

    def test_a_full_server_is_no_error_of_the_episode(self):
        address = self.serve(sessions=1)
        echo = openenv_environment(address, action="message")
        held = self.stub(echo).Episode(_held(), timeout=SECONDS)
        next(held)
        code, details = self.error_of(echo)
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED, details)
        held.cancel()


def _held():
    """A reset, and nothing more while the stream is open."""
    from freshet.env.v1 import env_service_pb2 as env_pb

    yield env_pb.EpisodeRequest(reset=env_pb.Reset(seed=1))
    threading.Event().wait(SECONDS)


if __name__ == "__main__":
    unittest.main()
