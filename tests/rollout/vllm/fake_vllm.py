#!/usr/bin/env python3
"""A server with the HTTP interface of vLLM 0.32, as far as Freshet uses it, and without a model.

usage: fake_vllm.py FOLDER [PORT]     prints "listening on PORT", also to FOLDER/port

Its next token is a hash of the loaded weights, the tokens so far and the seed. It is its own
supervisor: it serves the model that FOLDER/serve names, and starts anew when that changes.

POST /fake {"hold_after": N}      answers stop after N tokens until {"hold_after": null}
POST /fake {"fault": {"path": P, "kind": K, "times": N, "after": M}}
                                  the next N calls of P, but for M at first, go wrong
POST /fake {"die": true}          it exits
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

NO_LOGPROB = -9999.0


class Server:
    """What the interface shows of an engine. All members are guarded by `changed`."""

    def __init__(self, folder):
        self.folder = folder
        self.changed = threading.Condition()
        self.log = []
        self.hold_after = None
        self.fault = None
        self.running = 0
        self.epoch = 0
        self.name = ""
        self.dead = True
        self.tensors = {}
        self.version = "default"
        self.paused = self.stripped = False
        self.aborted = set()

    def start(self, name):
        self.name = name
        self.epoch += 1  # answers of the former one break off
        self.version = "default"
        self.paused = False
        self.stripped = False
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
    protocol_version = "HTTP/1.1"
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
        kind = {400: "BadRequestError", 404: "NotFoundError"}.get(status, "InternalServerError")
        self.answer(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})

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
                return self.error(500, "EngineCore encountered an issue")
            if fault == "status400":
                return self.error(400, "told to reject")
            if fault == "garbage":
                return self.answer(200, ["not", "what", "was", "asked"])
        route = {
            "/health": self.health, "/v1/models": self.models, "/pause": self.pause,
            "/resume": self.resume, "/collective_rpc": self.reload,
            "/update_weight_version": self.set_version, "/weight_info": self.weight_info,
            "/reset_prefix_cache": self.reset_prefix_cache,
            "/inference/v1/abort_requests": self.abort,
            "/inference/v1/generate": lambda q, b: self.generate(b, fault),
        }.get(url.path)
        if route is None:
            return self.error(404, f"no route {url.path}")
        if url.path == "/update_weight_version" and fault == "ignored":
            return self.answer(200, {"success": True, "new_version": body["new_version"]})
        return route(query, body)

    def control(self, body):
        state = self.server_state
        with state.changed:
            if body is None:
                return self.answer(200, {"log": state.log, "name": state.name, "version": state.version,
                                         "running": state.running, "tensors": state.tensors})
            if body.get("die"):
                os._exit(1)
            if "hold_after" in body:
                state.hold_after = body["hold_after"]
            if "fault" in body:
                state.fault = body["fault"]
            if body.get("crash"):
                state.dead = True
                state.epoch += 1
            state.changed.notify_all()
        return self.answer(200, {})

    def health(self, _query, _body):
        self.answer(200, None)

    def models(self, _query, _body):
        state = self.server_state
        self.answer(200, {"object": "list", "data": [{"id": state.name, "max_model_len": state.max_len}]})

    def pause(self, query, body):
        if query.get("mode", "abort") != "keep" or body is not None:
            return self.error(400, "the fake only pauses with ?mode=keep")
        with self.server_state.changed:
            self.server_state.paused = True
        return self.answer(200, {"status": "paused"})

    def resume(self, _query, _body):
        state = self.server_state
        with state.changed:
            state.paused = False
            if state.stripped:  # the next step of the model fails
                state.dead = True
                state.epoch += 1
            state.changed.notify_all()
        self.answer(200, {"status": "resumed"})

    def reload(self, _query, body):
        state = self.server_state
        if body.get("method") != "reload_weights":
            return self.error(500, "unknown method")
        with state.changed:
            try:
                state.load(body["kwargs"]["weights_path"])
            except (OSError, ValueError) as error:
                state.stripped = True
                return self.error(500, f"Worker failed with error '{error}'")
            state.stripped = False
        return self.answer(200, {"results": [None]})

    def set_version(self, _query, body):
        with self.server_state.changed:
            self.server_state.version = body["new_version"]
        self.answer(200, {"success": True, "new_version": body["new_version"]})

    def weight_info(self, _query, _body):
        self.answer(200, {"weight_version": self.server_state.version})

    def reset_prefix_cache(self, _query, _body):
        self.answer(200, {"success": self.server_state.running == 0})

    def abort(self, _query, body):
        state = self.server_state
        with state.changed:
            state.aborted.update(body["request_ids"])
            state.changed.notify_all()
        self.answer(200, None)

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, value):
        self.chunk("data: " + (value if isinstance(value, str) else json.dumps(value)) + "\n\n")

    def generate(self, body, fault):
        state = self.server_state
        params = body["sampling_params"]
        tokens = body["token_ids"]
        if body.get("model") not in (None, state.name):
            return self.error(404, f"The model `{body['model']}` does not exist.")
        if not tokens or min(tokens) < 0 or len(tokens) >= state.max_len:
            return self.error(400, "bad token_ids")
        if max(tokens) >= state.vocab:  # the embedding lookup throws in the worker
            with state.changed:
                state.dead = True
                state.epoch += 1
                state.changed.notify_all()
            return self.error(500, "EngineCore encountered an issue")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            self.stream("generate-tokens-" + body["request_id"], list(tokens), params, fault)
        except BrokenPipeError:
            pass
        finally:
            with state.changed:
                state.running -= 1
        return None

    def stream(self, request, tokens, params, fault):
        state = self.server_state
        most = min(params["max_tokens"], state.max_len - len(tokens))
        every = params.get("stream_interval") or 1
        spans, waiting, count, reason, stop = [], [], 0, None, None
        with state.changed:
            epoch = state.epoch
            state.running += 1
        while reason is None:
            with state.changed:
                state.changed.wait_for(lambda: state.epoch != epoch or request in state.aborted or not (
                    state.paused or (state.hold_after is not None and count >= state.hold_after)))
                if state.epoch != epoch:
                    return  # the stream breaks off
                if request in state.aborted:
                    reason = "abort"
                else:
                    token, logprob = state.next_token(tokens, params.get("seed") or 0)
                    version = state.version
            if reason is None:
                tokens.append(token)
                waiting.append((token, logprob))
                if spans and spans[-1]["version"] == version:
                    spans[-1]["end"] = count + 1
                else:
                    spans.append({"version": version, "start": count, "end": count + 1})
                count += 1
                if token in params.get("stop_token_ids", []):
                    reason, stop = "stop", token
                elif count == most:
                    reason = "length"
            if reason is not None or len(waiting) >= every or count == 1:
                if fault == "truncate":
                    self.chunk('data: {"choices": [{"ind')
                    return
                self.event(self.piece(request, waiting, reason, stop, spans, fault))
                waiting = []
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def piece(self, request, waiting, reason, stop, spans, fault):
        content = [{"token_id": token, "logprob": logprob, "rank": 1,
                    "top_logprobs": [{"token_id": token, "logprob": logprob, "rank": 1}]}
                   for token, logprob in waiting]
        ids = [token for token, _ in waiting]
        if fault == "wrong_count" and content:
            content.pop()
        if fault == "not_finite" and content:
            content[-1]["logprob"] = NO_LOGPROB
        if fault == "outside" and ids:
            ids[-1] = content[-1]["token_id"] = self.server_state.vocab
        if fault == "old_version":
            spans = [{**span, "version": "default"} for span in spans]
        if fault == "stream_error":
            return {"error": {"message": "the engine failed", "type": "InternalServerError", "code": 500}}
        return {"request_id": request, "usage": None, "output_mode": "tokens", "choices": [
            {"index": 0, "finish_reason": reason, "stop_reason": stop, "token_ids": ids,
             "routed_experts": None, "weight_versions": spans if reason else None,
             "logprobs": {"content": content}}]}


def main():
    state = Handler.server_state = Server(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    with state.changed:
        state.follow_folder()
    with open(os.path.join(sys.argv[1], "port"), "w", encoding="utf-8") as file:
        file.write(str(server.server_address[1]))
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
