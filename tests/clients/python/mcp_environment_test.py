"""Tools of a server of the package mcp."""

import functools
import http.server
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import unittest
import unittest.mock

import freshet
import grpc
from freshet.mcp_environment import McpEnvironment
from played_episodes import SECONDS, EpisodesTest

# A busy machine is no failure.
mcp_environment = functools.partial(freshet.mcp_environment, seconds=SECONDS)
sys.modules["freshet.mcp_session"]._CHECK_SECONDS = SECONDS

BAD_SERVER = str(pathlib.Path(__file__).with_name("bad_mcp_server.py"))
SERVER = [sys.executable, str(pathlib.Path(__file__).with_name("mcp_server.py"))]


def call(tool, **arguments):
    return f'I ask.<tool_call>\n{json.dumps({"name": tool, "arguments": arguments})}\n</tool_call>'


@unittest.skipUnless(importlib.util.find_spec("mcp"), "mcp is not installed")
class McpEnvironmentTest(EpisodesTest):
    def answers(self, reply):
        return [(message.role, message.name, message.content) for message in reply.messages]

    def test_tools_are_listed_and_called_and_a_turn_without_a_call_ends(self):
        tools = mcp_environment(SERVER)
        reset, step, end = self.play(tools, call("add", a=2, b=3) + call("add", a=1, b=1), "It is 5.")
        listed = [json.loads(tool)["function"] for tool in reset.tools]
        self.assertEqual(listed[0]["name"], "add")
        self.assertEqual(listed[0]["description"], "The sum of two numbers.")
        self.assertEqual(sorted(listed[0]["parameters"]["properties"]), ["a", "b"])
        self.assertEqual(self.answers(step), [("tool", "add", "5"), ("tool", "add", "2")])
        self.assertEqual((step.terminated, end.terminated, end.reward), (False, True, 0))

    def test_over_http(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen([*SERVER, str(port)], stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for line in server.stderr:
            if "Uvicorn running" in line:
                break
        tools = mcp_environment(f"http://127.0.0.1:{port}/mcp")
        _, step = self.play(tools, call("add", a=2, b=3))
        self.assertEqual(self.answers(step), [("tool", "add", "5")])
        server.stderr.close()

    def test_a_server_that_is_gone_over_http_is_an_infrastructure_error(self):
        class Server(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                information = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                               "serverInfo": {"name": "tools", "version": "1"}}
                results = {"initialize": information,
                           "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}}
                result = results.get(request.get("method"))
                self.send_response(200 if result else 404 if "id" in request else 202)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                if result:
                    self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        tools = mcp_environment(f"http://127.0.0.1:{server.server_port}/mcp")
        self.assertEqual(self.error_of(tools, call("add", a=2, b=3))[0], grpc.StatusCode.INTERNAL)

    def test_what_the_policy_gets_wrong_is_explained(self):
        tools = mcp_environment(SERVER, tools=["add", "fail"])
        reset, *steps, after = self.play(
            tools, "<tool_call>{</tool_call>", '<tool_call>{"name": 1}', '<tool_call>{"name": "add", "arguments": 1}',
            call("flood"), call("nothing"), call("add", a="x", b=1), call("fail"),
            '<tool_call>{"name": "add", "arguments": {"a": "\\ud83d"}}', call("add", a=json.loads("[" * 70 + "]" * 70), b=1),
            call("add", a=1, b=1))
        self.assertEqual(len(reset.tools), 2)
        wrong = ("not JSON", "an object with a name", "arguments must be an object", "no tool 'flood'",
                 "no tool 'nothing'", "int", "Error executing tool fail", "not JSON", "nested deeper")
        self.assertEqual(len(steps), len(wrong))
        for step, why in zip(steps, wrong):
            ((role, _, content),) = self.answers(step)
            self.assertEqual(role, "tool")
            self.assertIn(why, content)
            self.assertFalse(step.terminated)
            self.assertEqual(step.invalid, why not in ("int", "Error executing tool fail"), why)
        self.assertEqual((self.answers(after), after.invalid), ([("tool", "add", "2")], False))

    def test_names_that_the_server_does_not_have_are_refused(self):
        for options, why in (({"tools": ["ad"]}, "no ad"), ({"bind": {"c": "x"}}, "no c")):
            self.assertIn(why, self.error_of(mcp_environment(SERVER, **options), x="1")[1])

    def test_bad_options_are_refused(self):
        for arguments, options in (("python3 server.py", {}), ([], {}), (["python3", 3], {}), (SERVER, {"tools": "add"}),
                                   (SERVER, {"env": {"A": 1}}), (SERVER, {"seconds": 0}), (SERVER, {"tool_calls": "x"}),
                                   (SERVER, {"costs": {"add": -1}}), (SERVER, {"costs": {"add": "1"}})):
            with self.assertRaises(ValueError):
                mcp_environment(arguments, **options)

    def test_the_name_of_a_server_holds_no_keys(self):
        name = sys.modules["freshet.mcp_session"].server_name
        for server, named in (("https://me:secret@host:81/secret/mcp?key=secret", "https://host:81"),
                              ("http://secret@[::1]/secret", "http://[::1]"), (["tool", "--key=secret"], "tool")):
            self.assertEqual(name(server), named)
        reason = sys.modules["freshet.mcp_session"].reason_of
        self.assertEqual(reason(ValueError("Redirect to http://me:secret@host:81/secret?key=secret not followed")),
                         "ValueError: Redirect to http://host:81/... not followed")
        self.assertEqual(reason(ValueError("at http://host?key=a@secret")), "ValueError: at http://host/...")

    def test_calls_are_limited_in_number_and_size(self):
        tools = mcp_environment(SERVER, max_calls=2, max_characters=100)
        _, long, more = self.play(tools, call("flood"), call("add", a=1, b=1) * 2)
        self.assertEqual(self.answers(long)[0][2], "x" * 100 + "\n[99900 more characters are cut]")
        self.assertEqual((more.truncated, more.terminated), (True, False))

    def test_calls_are_limited_in_time(self):
        class Hurried(McpEnvironment):
            async def reset(self, seed, options):
                answer = await super().reset(seed, options)
                self._seconds = 0.1
                return answer

        _, slow = self.play(functools.partial(Hurried, **mcp_environment(SERVER).keywords), call("hang"))
        self.assertEqual(self.answers(slow), [("tool", "hang", "error: the tool took too long")])

    def test_calls_have_costs(self):
        tools = mcp_environment(SERVER, costs={"add": 0.25, "flood": 2}, max_characters=10)
        reset, both, free = self.play(tools, call("add", a=1, b=1) * 2 + call("flood"), call("fail"))
        self.assertEqual([reset.cost, both.cost, free.cost], [0.0, 2.5, 0.0])

    def test_a_shared_session_is_opened_again_when_it_is_lost(self):
        tools = mcp_environment(SERVER, shared=True)
        process = [self.answers(self.play(tools, call("process"))[1])[0][2] for _ in range(2)]
        self.assertEqual(process[0], process[1])
        self.assertEqual(self.error_of(tools, call("die"))[0], grpc.StatusCode.INTERNAL)
        self.assertNotEqual(self.answers(self.play(tools, call("process"))[1])[0][2], process[0])

    def test_bound_arguments_are_the_rows(self):
        tools = mcp_environment(SERVER, tools=["add"], bind={"b": "second"})
        reset, step = self.play(tools, call("add", a=2, b=5), second="40")
        parameters = json.loads(reset.tools[0])["function"]["parameters"]
        self.assertEqual((list(parameters["properties"]), parameters["required"]), (["a"], ["a"]))
        self.assertEqual(self.answers(step), [("tool", "add", "42")])
        self.assertIn("no field second", self.error_of(tools)[1])

    def test_the_servers_environment_is_its_own(self):
        with unittest.mock.patch.dict(os.environ, {"MINE": "yes", "OTHER": "no"}):
            tools = mcp_environment(SERVER, pass_env=["MINE"])
        with self.assertRaisesRegex(ValueError, "pass_env: the environment variable ABSENT is not set"):
            mcp_environment(SERVER, pass_env=["ABSENT"])
        _, mine, theirs = self.play(tools, call("environment", name="MINE"), call("environment", name="SECRET"))
        self.assertEqual((self.answers(mine)[0][2], self.answers(theirs)[0][2]), ("yes", ""))

    def test_a_server_that_is_lost_is_an_infrastructure_error(self):
        for server, actions in ((SERVER, [call("die")]), ([sys.executable, "-c", ""], []), (["/none"], []),
                                ("http://127.0.0.1:9/mcp", [])):
            with self.subTest(server):
                self.assertEqual(self.error_of(mcp_environment(server), *actions)[0], grpc.StatusCode.INTERNAL)

    def test_answers_that_the_library_drops_fail_the_episode_by_name(self):
        deep = '{"jsonrpc": "2.0", "id": ID, "result": ' + "[" * 2000 + "]" * 2000 + "}"
        half = '{"jsonrpc": "2.0", "id": ID, "result": {"tools": ["\\ud83d"]}}'
        for method, answer in (("tools/list", deep), ("tools/list", half),
                               ("tools/call", '{"jsonrpc": "2.0", "id": ID}')):
            with self.subTest(method=method, answer=answer[:60]):
                tools = mcp_environment([sys.executable, BAD_SERVER, method, answer], seconds=1.0)
                code, details = self.error_of(tools, call("add", a=1, b=1))
                self.assertEqual(code, grpc.StatusCode.INTERNAL)
                self.assertIn(f"sent no valid answer to {method}", details)
                self.assertIn(f"the MCP server {sys.executable} sent", details)
                self.assertNotIn("bad_mcp_server.py", details)  # an argument may hold a key
                self.assertIn("a message that cannot be read: ", details)

    def test_a_message_that_cannot_be_read_does_not_end_a_shared_session(self):
        answer = '{"jsonrpc": "2.0", "id": ID}'
        tools = mcp_environment([sys.executable, BAD_SERVER, "tools/call", answer], seconds=2.0, shared=True)
        _, slow = self.play(tools, call("add", a=1, b=1))
        self.assertEqual(self.answers(slow), [("tool", "add", "error: the tool took too long")])

    def test_a_server_that_does_not_start_is_said(self):
        with unittest.mock.patch.object(sys.modules["freshet.mcp_session"], "_START_SECONDS", 0.1):
            code, details = self.error_of(mcp_environment([sys.executable, "-c", "import sys; sys.stdin.read()"]))
        self.assertEqual(code, grpc.StatusCode.INTERNAL)
        self.assertIn("did not answer initialize within 0.1 s", details)

    def test_calls_of_llama3(self):
        tools = mcp_environment(SERVER, tool_calls="llama3_json")
        _, step, end = self.play(tools, '{"name": "add", "parameters": {"a": 4, "b": 4}}', "It is 8.")
        self.assertEqual(self.answers(step), [("tool", "add", "8")])
        self.assertTrue(end.terminated)


if __name__ == "__main__":
    unittest.main()
