"""What fakes of inference servers have in common. They have no model.

usage: fake_KIND.py FOLDER [PORT]     prints "listening on PORT", also to FOLDER/port

The next token is a hash of the loaded weights, the tokens so far and the seed. A fake is its own
supervisor: it serves the model that FOLDER/serve names, and starts anew when that changes.

POST /fake {"hold_after": N}      answers stop after N tokens until {"hold_after": null}
POST /fake {"fault": {"path": P, "kind": K, "times": N, "after": M}}
                                  the next N calls of P, but for M at first, go wrong
POST /fake {"crash": true}        its engine dies
POST /fake {"pings": true}        answers that are held get comments, which have no tokens
POST /fake {"cumulative": true}   pieces have all tokens so far (SGLang)
POST /fake {"workers": N}         its GPU workers (vLLM)
GET /fake                         the calls so far: [{path, query, body}], and what is loaded
"""
import hashlib
import http.server
import json
import os
import struct
import sys
import threading
import urllib.parse


class Server:
    """What the interface shows of an engine. All members are guarded by `changed`."""

    def __init__(self, folder):
        self.folder = folder
        self.changed = threading.Condition()
        self.log = []
        self.hold_after = None
        self.cumulative = self.pings = False
        self.fault = None
        self.running = 0
        self.epoch = 0
        self.name = self.served = ""  # served: what it says
        self.dead = True
        self.tensors = {}
        self.version = "default"
        self.paused = self.stripped = self.updating = False
        self.workers = 1
        self.work, self.results, self.asked = [], {}, 0  # of the workers of a weight transfer (vLLM)
        self.received = None
        self.aborted = set()
        self.requests = set()  # that run (SGLang)

    def start(self, name):
        self.name = self.served = name
        self.epoch += 1  # answers of the former one break off
        self.version = "default"
        self.paused = False
        self.stripped = self.updating = False
        self.dead = False
        self.aborted = set()
        try:
            self.load(os.path.join(self.folder, name))
        except (OSError, ValueError):
            self.dead = True
        self.changed.notify_all()

    def load(self, path):
        """Raises if the folder is not a complete model."""
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        with open(os.path.join(path, "model.safetensors"), "rb") as file:
            data = file.read()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        tensors = {name: value for name, value in header.items() if name != "__metadata__"}
        if any(value["dtype"] != "BF16" for value in tensors.values()):
            raise ValueError("a tensor is not BF16")
        if max(value["data_offsets"][1] for value in tensors.values()) + 8 + length != len(data):
            raise ValueError("the file is cut short")
        self.vocab = config["vocab_size"]
        self.max_len = config["max_position_embeddings"]
        self.digest = hashlib.sha256(data[8 + length :]).digest()
        self.tensors = {name: value["shape"] for name, value in tensors.items()}

    def follow_folder(self):
        try:
            with open(os.path.join(self.folder, "serve"), encoding="utf-8") as file:
                wanted = file.readline().strip()
        except FileNotFoundError:
            return
        if wanted != self.name:
            self.start(wanted)

    def take_fault(self, path):
        fault = self.fault
        if fault is None or fault["path"] != path:
            return None
        if fault.get("after", 0) > 0:
            fault["after"] -= 1
            return None
        fault["times"] = fault.get("times", 1) - 1
        if fault["times"] <= 0:
            self.fault = None
        return fault["kind"]

    def next_token(self, tokens, seed):
        text = struct.pack(f"<{len(tokens)}iQ", *tokens, seed)
        bits = int.from_bytes(hashlib.sha256(self.digest + text).digest()[:8], "little")
        return bits % self.vocab, -(bits % 1000) / 100.0 - 0.5


class Handler(http.server.BaseHTTPRequestHandler):
    """`routes` of a subclass name the method of each path, which gets query, body and fault."""

    routes = {}
    protocol_version = "HTTP/1.1"
    counted = False
    server_state: Server

    def log_message(self, *args):
        pass

    def answer(self, status, value):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, message):
        self.answer(status, {"error": {"message": message, "type": "Error", "param": None, "code": status}})

    def do_GET(self):  # pylint: disable=invalid-name
        self.handle_call(None)

    def do_POST(self):  # pylint: disable=invalid-name
        text = self.rfile.read(int(self.headers.get("content-length", 0)))
        if text and self.headers.get("content-type") != "application/json":
            return self.error(400, "content-type must be application/json")
        self.handle_call(json.loads(text) if text else None)

    def handle_call(self, body):
        state = self.server_state
        self.close_connection = True
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/fake":
            return self.control(body)
        with state.changed:
            state.follow_folder()
            if url.path not in ("/health", "/v1/models"):
                state.log.append({"path": url.path, "query": query, "body": body})
            fault = state.take_fault(url.path)
            if fault == "hang":
                epoch = state.epoch
                state.changed.wait_for(lambda: state.epoch != epoch)
                return None
            if state.dead or not state.name:
                return self.error(503, "the engine is dead")
            if fault == "status500":
                return self.error(500, "the engine encountered an issue")
            if fault == "status400":
                return self.error(400, "told to reject")
            if fault == "garbage":
                return self.answer(200, ["not", "what", "was", "asked"])
        name = {"/health": "health", "/v1/models": "models", **self.routes}.get(url.path)
        if name is None:
            return self.error(404, f"no route {url.path}")
        return getattr(self, name)(query, body, fault)

    def control(self, body):
        state = self.server_state
        with state.changed:
            if body is None:
                return self.answer(200, {"log": state.log, "name": state.name, "version": state.version,
                                         "running": state.running, "tensors": state.tensors})
            if "hold_after" in body:
                state.hold_after = body["hold_after"]
            if "cumulative" in body:
                state.cumulative = body["cumulative"]
            if "pings" in body:
                state.pings = body["pings"]
            if "workers" in body:
                state.workers = body["workers"]
            if "fault" in body:
                state.fault = body["fault"]
            if body.get("crash"):
                state.dead = True
                state.epoch += 1
            state.changed.notify_all()
        return self.answer(200, {})

    def health(self, _query, _body, _fault):
        self.answer(200, None)

    def models(self, _query, _body, _fault):
        state = self.server_state
        self.answer(200, {"object": "list", "data": [{"id": state.served, "max_model_len": state.max_len}]})

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, value):
        self.chunk("data: " + (value if isinstance(value, str) else json.dumps(value)) + "\n\n")

    def await_token(self, ready):
        """Waits for `ready`. The caller holds `changed`."""
        state = self.server_state
        while not state.changed.wait_for(ready, 0.001 if state.pings else None):
            self.chunk(": ping\n\n")

    def begin_answer(self):
        """The caller holds `changed`."""
        self.counted = True
        self.server_state.running += 1

    def end_answer(self):
        """Call it before the last event, and in any case."""
        with self.server_state.changed:
            self.server_state.running -= self.counted
            self.counted = False
            self.server_state.changed.notify_all()

    def begin_stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def end_stream(self):
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


def serve(handler):
    handler.server_state = state = Server(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    with state.changed:
        state.follow_folder()
    with open(os.path.join(sys.argv[1], "port"), "w", encoding="utf-8") as file:
        file.write(str(server.server_address[1]))
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()
