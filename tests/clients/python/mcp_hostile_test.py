"""MCP servers that send too much, or what cannot be read."""

import importlib.util
import json
import pathlib
import sys
import unittest

import bad_mcp_server
import freshet
import grpc
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
            ("tools/call", "x", {**JSON, "Content-Encoding": "gzip"}, "sent a compressed body", {}),
            ("tools/call", LATIN, JSON, "sent a body that is not UTF-8", {}),
            ("tools/call", f"data: {LATIN}\n\n", EVENTS, "sent a body that is not UTF-8", {}),
            ("tools/call", NAN, JSON, "the answer has a number that is not finite", {}),
            ("tools/call", f"data: {NAN}\n\n", EVENTS, "the answer has a number that is not finite", {}),
            ("tools/call", "Traceback", JSON, "Invalid JSON", {}),
            ("tools/call", "data: Traceback\n\n", EVENTS, "Invalid JSON", {}),
            ("tools/call", OTHER, JSON, "it sent an answer with the id 77, which no request has", {"seconds": 1.0}),
        ):
            with self.subTest(method=method, answer=answer[:80], headers=headers, **options):
                server = bad_mcp_server.serve(method, answer, headers)
                self.addCleanup(server.server_close)
                self.addCleanup(server.shutdown)
                self.fails(f"http://127.0.0.1:{server.server_port}/mcp", why, **options)

    def test_all_pages_of_tools_are_limited(self):
        page = {"tools": [{"name": "add", "description": "x" * (LIMIT // 3), "inputSchema": {"type": "object"}}],
                "nextCursor": "more"}
        answer = json.dumps({"jsonrpc": "2.0", "id": 0, "result": page}).replace('"id": 0', '"id": ID')
        self.fails([*BAD_SERVER, "tools/list", answer], f"lists tools of more than {LIMIT} bytes")

    def test_schemas_of_answers_are_not_evaluated(self):
        tools = {"tools": [{"name": "add", "inputSchema": {"type": "object"},
                            "outputSchema": {"type": "object", "required": ["sum"]}}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": 0, "result": tools}).replace('"id": 0', '"id": ID')
        bad = freshet.mcp_environment([*BAD_SERVER, "tools/list", answer], seconds=SECONDS)
        self.assertEqual([message.name for message in self.play(bad, CALL)[1].messages], ["add"])


@unittest.skipUnless(importlib.util.find_spec("mcp"), "mcp is not installed")
class TrafficTest(unittest.TestCase):
    def setUp(self):
        from freshet.mcp_transport import SessionMessage, Traffic
        from mcp_types import jsonrpc_message_adapter

        self.faults, self.flaws = [], []
        self.traffic = Traffic(100, self.faults.append, self.flaws.append)
        self.message = lambda **fields: SessionMessage(
            jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **fields}))

    def test_as_many_bytes_as_allowed_are_no_fault(self):
        self.assertTrue(self.traffic.is_within_bounds(100, 60))
        self.traffic.sent(self.message(id=1, method="ping"))
        self.assertTrue(self.traffic.is_within_bounds(0, 60))
        self.traffic.received(self.message(id=1, result={}))
        self.assertTrue(self.traffic.is_within_bounds(0, 100))
        self.traffic.received(self.message(id=1, result={}))  # nobody waits for it: no new allowance
        self.assertEqual(self.faults, [])
        self.assertFalse(self.traffic.is_within_bounds(0, 1))
        self.assertEqual(len(self.faults), 1)
        self.assertFalse(self.traffic.is_within_bounds(101))

    def test_a_late_answer_is_no_flaw(self):
        self.traffic.sent(self.message(id=1, method="ping"))
        self.traffic.sent(self.message(method="notifications/cancelled", params={"requestId": 1}))
        self.traffic.received(self.message(id=1, result={}))
        self.assertEqual(self.flaws, [])
        self.traffic.received(self.message(id="2", result={}))
        self.assertEqual(self.flaws, ["an answer with the id 2, which no request has"])


if __name__ == "__main__":
    unittest.main()
