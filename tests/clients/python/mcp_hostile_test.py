"""MCP servers that send too much, or what cannot be read."""

import asyncio
import importlib.util
import json
import logging
import pathlib
import sys
import unittest
import unittest.mock

import bad_mcp_server
import freshet
import grpc
from freshet import mcp_session
from freshet.env.v1 import env_service_pb2 as env_pb
from played_episodes import SECONDS, EpisodesTest

BAD_SERVER = [sys.executable, str(pathlib.Path(bad_mcp_server.__file__))]
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}
CALL = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
LIMIT = 1 << 18
TOO_MUCH = f"sent more than {LIMIT} bytes for one answer; max_answer_bytes limits them"

NAN = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "structuredContent": {"a": NaN}}}'
LARGE = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "a": 1e999}}'
LATIN = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "\udcff"}]}}'
OTHER = '{"jsonrpc": "2.0", "id": 77, "result": {"content": []}}'
NONE = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "what?"}}'
NO_TOOLS = '{"jsonrpc": "2.0", "id": ID, "result": {"tools": 3}}'


def answer_with(result):
    return json.dumps({"jsonrpc": "2.0", "id": "ID", "result": result}).replace('"ID"', "ID")


def serve(test, method, answer, headers):
    server = bad_mcp_server.serve(method, answer, headers)
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}/mcp"


@unittest.skipUnless(importlib.util.find_spec("mcp"), "mcp is not installed")
class McpHostileTest(EpisodesTest):
    def fails(self, server, why, **options):
        """An episode with this server fails for this reason, and the next one is as if nothing had happened."""
        bad = freshet.mcp_environment(server, **{"seconds": SECONDS, "max_answer_bytes": LIMIT, **options})
        stub = self.stub({"bad": bad, "good": freshet.mcp_environment([*BAD_SERVER, "", ""], seconds=SECONDS)})

        def play(name):
            reset = env_pb.EpisodeRequest(reset=env_pb.Reset(environment=name))
            step = env_pb.EpisodeRequest(step=env_pb.Step(action=CALL))
            return list(stub.Episode(iter([reset, step]), timeout=SECONDS))

        with self.assertRaises(grpc.RpcError) as caught:
            play("bad")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INTERNAL)
        self.assertIn(why, caught.exception.details())
        self.assertIn("the MCP server ", caught.exception.details())
        self.assertEqual([message.name for message in play("good")[1].messages], ["add"])

    def test_on_stdio(self):
        for method, answer, why, options in (
            ("initialize", "endless", TOO_MUCH, {}),
            ("tools/list", "endless", TOO_MUCH, {}),
            ("tools/list", NO_TOOLS, "failed tools/list: ValidationError", {}),
            ("tools/call", "endless", TOO_MUCH, {}),
            ("tools/call", "endless", TOO_MUCH, {"shared": True}),
            ("tools/call", "notes", TOO_MUCH, {}),
            ("tools/call", "pings", "sent more than 64 requests without waiting for their answers", {}),
            ("tools/call", NAN, "failed tools/call of add: MCPError: the answer has a number that is not finite", {}),
            ("tools/call", LARGE, "the answer has a number that is not finite", {}),
            ("tools/call", LATIN, "cannot be read: UnicodeDecodeError: 'utf-8' codec", {"seconds": 1.0}),
            ("tools/call", "Traceback", "Invalid JSON", {"seconds": 1.0}),
            ("tools/call", OTHER, "it sent an answer with the id 77, which no request has", {"seconds": 1.0}),
            ("tools/call", NONE, "it sent an error without an id: what?", {"seconds": 1.0}),
        ):
            with self.subTest(method=method, answer=answer[:80], **options):
                self.fails([*BAD_SERVER, method, answer], why, **options)

    def test_over_http(self):
        for method, answer, headers, why, options in (
            ("initialize", "endless", JSON, TOO_MUCH, {}),
            ("tools/list", "endless", JSON, TOO_MUCH, {}),
            ("tools/call", "endless", JSON, TOO_MUCH, {}),
            ("tools/call", "event", EVENTS, TOO_MUCH, {}),
            ("tools/call", "events", EVENTS, TOO_MUCH, {}),
            ("tools/call", "comments", EVENTS, TOO_MUCH, {}),
            ("tools/call", "comments", EVENTS, TOO_MUCH, {"shared": True}),
            ("tools/call", bad_mcp_server.RETRY, EVENTS, "ended more than 64 event streams", {}),
            ("tools/call", LATIN, {**JSON, "Content-Encoding": "gzip"}, "not UTF-8, with Content-Encoding: gzip", {}),
            ("tools/call", LATIN, JSON, "sent a body that is not UTF-8", {}),
            ("tools/call", f"data: {LATIN}\n\n", EVENTS, "sent a body that is not UTF-8", {}),
            ("tools/call", NAN, JSON, "the answer has a number that is not finite", {}),
            ("tools/call", f"data: {NAN}\n\n", EVENTS, "the answer has a number that is not finite", {}),
            ("tools/call", "Traceback", JSON, "Invalid JSON", {}),
            ("tools/call", "data: Traceback\n\n", EVENTS, "Invalid JSON", {}),
            ("tools/call", OTHER, JSON, "it sent an answer with the id 77, which no request has", {"seconds": 1.0}),
        ):
            with self.subTest(method=method, answer=answer[:80], headers=headers, **options):
                self.fails(serve(self, method, answer, headers), why, **options)

    def test_the_name_of_a_coding_is_no_fault(self):
        for method, coding in (("tools/call", ""), ("tools/call", "utf-8"), ("tools/call", "gzip"),
                               ("notifications/initialized", "gzip")):
            with self.subTest(method=method, coding=coding):
                url = serve(self, method, answer_with({"content": []}), {**JSON, "Content-Encoding": coding})
                tools = freshet.mcp_environment(url, seconds=SECONDS)
                self.assertEqual([message.name for message in self.play(tools, CALL)[1].messages], ["add"])

    def test_all_pages_of_tools_are_limited(self):
        page = {"tools": [{"name": "add", "description": "x" * (LIMIT // 3), "inputSchema": {"type": "object"}}],
                "nextCursor": "more"}
        self.fails([*BAD_SERVER, "tools/list", answer_with(page)], f"lists tools of more than {LIMIT} bytes")

    def test_schemas_of_answers_are_not_evaluated(self):
        tools = {"tools": [{"name": "add", "inputSchema": {"type": "object"},
                            "outputSchema": {"type": "object", "required": ["sum"]}}]}
        bad = freshet.mcp_environment([*BAD_SERVER, "tools/list", answer_with(tools)], seconds=SECONDS)
        self.assertEqual([message.name for message in self.play(bad, CALL)[1].messages], ["add"])


@unittest.skipUnless(importlib.util.find_spec("mcp"), "mcp is not installed")
class SessionTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def session(self, server):
        session = mcp_session.Session(server, {}, True, LIMIT, SECONDS)
        self.addAsyncCleanup(session.close)
        return session

    async def test_a_fault_of_an_idle_session_ends_it(self):
        ready = answer_with(bad_mcp_server.RESULTS["initialize"])
        url = serve(self, "initialize", ready, {**JSON, "Mcp-Session-Id": "1"})
        for server, why in (([*BAD_SERVER, "notifications/initialized", "notes"], TOO_MUCH), (url, "64 event streams")):
            with self.subTest(why):
                session = self.session(server)
                await asyncio.wait_for(asyncio.shield(session._task), SECONDS)
                with self.assertRaisesRegex(RuntimeError, why):
                    await session.tools(SECONDS)

    async def test_the_library_waits_longer_than_a_caller(self):
        with unittest.mock.patch.object(mcp_session, "_START_SECONDS", 0.0):
            session = self.session([*BAD_SERVER, "", ""])
            await asyncio.sleep(0)  # until the task has begun
        self.assertEqual(len(await session.tools(SECONDS)), 1)

    async def test_whether_the_server_answers_is_not_read_from_the_cache(self):
        from freshet.mcp_transport import Traffic
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        discovered = {**bad_mcp_server.RESULTS["initialize"], "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
                      "resultType": "complete", "ttlMs": 60000, "cacheScope": "private"}
        with unittest.mock.patch.object(mcp_session, "_CHECK_SECONDS", SECONDS), \
             unittest.mock.patch.object(Traffic, "sent", autospec=True, side_effect=Traffic.sent) as sent:
            session = self.session([*BAD_SERVER, "server/discover", answer_with(discovered)])
            await session.tools(SECONDS)
            await session._check()
        methods = [call.args[1].message.method for call in sent.call_args_list]
        self.assertEqual(methods, ["server/discover", "tools/list", "tools/list"])


@unittest.skipUnless(importlib.util.find_spec("mcp"), "mcp is not installed")
class TrafficTest(unittest.TestCase):
    def setUp(self):
        from freshet.mcp_transport import SessionMessage, Traffic
        from mcp_types import jsonrpc_message_adapter

        self.faults, self.flaws = [], []
        self.now = 0.0
        self.traffic = Traffic(100, self.faults.append, self.flaws.append, lambda: self.now)
        self.message = lambda **fields: SessionMessage(
            jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **fields}))

    def test_as_many_bytes_as_allowed_are_no_fault(self):
        self.assertTrue(self.traffic.count_bytes(100, 60))
        self.traffic.sent(self.message(id=1, method="ping"))
        self.assertTrue(self.traffic.count_bytes(0, 60))
        self.traffic.received(self.message(id=1, result={}))
        self.assertTrue(self.traffic.count_bytes(0, 100))
        self.traffic.received(self.message(id=1, result={}))  # nobody waits for it: no new allowance
        self.assertEqual(self.faults, [])
        self.assertFalse(self.traffic.count_bytes(0, 1))
        self.assertEqual(len(self.faults), 1)
        self.assertFalse(self.traffic.count_bytes(101))

    def test_event_streams_may_end_once_per_second_and_for_each_call_that_waits(self):
        for calls in (1, 2):
            self.traffic.sent(self.message(id=calls, method="tools/call"))
            self.now += 100.0
            for _ in range(64 + 100 * (1 + calls)):
                self.traffic.count_event_stream()
        self.assertEqual(self.faults, [])
        self.traffic.count_event_stream()
        self.assertEqual(len(self.faults), 1)
        self.assertIn("ended more than 64 event streams", self.faults[0])

    def test_requests_that_the_server_cancels_need_no_answers(self):
        for _ in range(2):
            for id in range(64):
                self.traffic.received(self.message(id=id, method="ping"))
                self.traffic.received(self.message(method="notifications/cancelled", params={"requestId": id}))
        self.assertEqual(self.faults, [])
        for _ in range(65):
            self.traffic.received(self.message(id=1, method="ping"))
        self.assertEqual(len(self.faults), 1)

    def test_a_late_answer_is_no_flaw(self):
        self.traffic.sent(self.message(id=1, method="ping"))
        self.traffic.sent(self.message(method="notifications/cancelled", params={"requestId": 1}))
        self.traffic.received(self.message(id=1, result={}))
        self.assertEqual(self.flaws, [])
        self.traffic.received(self.message(id="2", result={}))
        self.assertEqual(self.flaws, ["an answer with the id 2, which no request has"])


if __name__ == "__main__":
    unittest.main()
