"""An MCP server whose answers are wrong, for tests: on stdio bad_mcp_server.py METHOD ANSWER, over HTTP serve().

ANSWER is what it answers to METHOD, with ID for the id of the request, or a key of FLOODS. On stdio METHOD may be a
notification. Over HTTP the answer to a GET is RETRY.
"""

import http.server
import itertools
import json
import sys
import threading

RESULTS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "bad", "version": "1"}},
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}], "resultType": "complete",
                   "ttlMs": 60000, "cacheScope": "private"},
    "tools/call": {"content": []},
}
PING = b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}'
NOTE = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}'

# An event stream that ends and asks the client to reconnect at once.
RETRY = "id: 1\nretry: 0\ndata:\n\n"

# Answers that never end.
FLOODS = {
    "endless": lambda: itertools.chain([b'{"jsonrpc": "2.0", "result": "'], itertools.repeat(b"x" * 65536)),
    "notes": lambda: itertools.repeat(NOTE + b"\n"),
    "pings": lambda: itertools.repeat(PING + b"\n"),
    "events": lambda: itertools.repeat(b"data: " + NOTE + b"\n\n"),
    "comments": lambda: itertools.repeat(b": wait\n\n"),
    "event": lambda: itertools.chain([b"data: "], itertools.repeat(b"x" * 65536)),
}


def body_of(request, method, answer):
    """What is sent, in pieces."""
    if request["method"] != method:
        result = RESULTS.get(request["method"])
        said = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        return [json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}).encode()]
    if answer in FLOODS:
        return FLOODS[answer]()
    return [answer.encode(errors="surrogateescape").replace(b"ID", json.dumps(request["id"]).encode())]


def serve(method, answer, headers):
    """Starts a server of streamable HTTP that answers `method` with these headers."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(RETRY.encode())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = json.loads(body) if body else {}  # no body: the client closed the connection
            asked = "id" in request and "method" in request
            self.send_response(200 if asked else 202)
            chosen = headers if request.get("method") == method else {}
            for name, value in {"Content-Type": "application/json", **chosen}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for part in body_of(request, method, answer) if asked else ():
                    self.wfile.write(part)
            except OSError:
                pass  # the client closed the connection

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "method" in request and ("id" in request or request["method"] == sys.argv[1]):
            for part in body_of(request, *sys.argv[1:]):
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.write(b"\n")
            sys.stdout.buffer.flush()
