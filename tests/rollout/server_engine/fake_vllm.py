#!/usr/bin/env python3
"""A server with the HTTP interface of vLLM 0.32, as far as Freshet uses it. See fake_server.py.

Its workers are threads of the test (transfer_workers.h), where the fake NCCL is:

GET /fake/transfer                waits for their next work: {call, what: "init" or "update", info}
POST /fake/transfer {"call": N, "error": TEXT, "sha256": HEX}
                                  they have done it, or failed
"""
import urllib.parse

import fake_server

NO_LOGPROB = -9999.0


class Handler(fake_server.Handler):
    routes = {
        "/pause": "pause", "/is_paused": "is_paused", "/resume": "resume", "/collective_rpc": "reload",
        "/update_weight_version": "set_version", "/weight_info": "weight_info",
        "/reset_prefix_cache": "reset_prefix_cache",
        "/inference/v1/abort_requests": "abort", "/inference/v1/generate": "generate",
        "/get_world_size": "world_size", "/init_weight_transfer_engine": "init_transfer",
        "/start_weight_update": "start_update", "/update_weights": "update",
        "/finish_weight_update": "finish_update", "/shutdown_weight_transfer_engine": "shutdown_transfer",
    }

    def handle_call(self, body):
        if urllib.parse.urlsplit(self.path).path == "/fake/transfer":
            self.close_connection = True
            return self.give_work() if body is None else self.take_result(body)
        return super().handle_call(body)

    def give_work(self):
        state = self.server_state
        with state.changed:
            state.changed.wait_for(lambda: state.work)
            work = state.work.pop(0)
        self.answer(200, work)

    def take_result(self, result):
        state = self.server_state
        with state.changed:
            state.results[result["call"]] = result
            state.changed.notify_all()
        self.answer(200, {})

    def ask_workers(self, what, info):
        """Their result. None: the server was replaced meanwhile."""
        state = self.server_state
        with state.changed:
            epoch = state.epoch
            state.asked += 1
            call = state.asked
            state.work.append({"call": call, "what": what, "info": info})
            state.changed.notify_all()
            state.changed.wait_for(lambda: call in state.results or state.epoch != epoch)
            return state.results.pop(call) if state.epoch == epoch else None

    def worker_error(self, text):
        self.error(500, f"Call to collective_rpc method failed: Worker failed with error '{text}'")

    def world_size(self, query, _body, _fault):
        if query.get("include_dp") != "true":
            return self.error(400, "the fake only answers with ?include_dp=true")
        return self.answer(200, {"world_size": self.server_state.workers})

    def init_transfer(self, _query, body, _fault):
        result = self.ask_workers("init", body["init_info"])
        if result is None:
            return None
        if result["error"]:
            return self.worker_error(result["error"])
        return self.answer(200, {"message": "Weight transfer initialized"})

    def start_update(self, _query, _body, _fault):
        state = self.server_state
        with state.changed:
            if state.updating:
                return self.worker_error("start_weight_update called while a weight update is already active.")
            state.updating = state.stripped = True
            state.received = None
        return self.answer(200, {"message": "Weight update started"})

    def update(self, _query, body, _fault):
        state = self.server_state
        if not state.updating:
            return self.worker_error("start_weight_update must be called before update_weights.")
        info = body["update_info"]
        result = self.ask_workers("update", info)
        if result is None:
            return None
        with state.changed:
            if result["error"]:
                state.updating = False
                return self.worker_error(result["error"])
            state.received = (bytes.fromhex(result["sha256"]), dict(zip(info["names"], info["shapes"])))
        return self.answer(200, {"message": "Weights updated"})

    def finish_update(self, _query, _body, _fault):
        state = self.server_state
        with state.changed:
            if not state.updating:
                return self.worker_error("finish_weight_update called without a matching start_weight_update.")
            state.updating = state.stripped = False
            if state.received is not None:
                state.digest, state.tensors = state.received
        return self.answer(200, {"message": "Weight update finished"})

    def shutdown_transfer(self, _query, _body, _fault):
        if self.server_state.updating:
            return self.worker_error("Cannot release a trainer connection during a weight update")
        return self.answer(200, {"message": "Weight transfer shut down"})

    def pause(self, query, body, _fault):
        if query.get("mode", "abort") != "keep" or body is not None:
            return self.error(400, "the fake only pauses with ?mode=keep")
        with self.server_state.changed:
            self.server_state.paused = True
        return self.answer(200, {"status": "paused"})

    def is_paused(self, _query, _body, _fault):
        return self.answer(200, {"is_paused": self.server_state.paused})

    def resume(self, _query, _body, _fault):
        state = self.server_state
        with state.changed:
            state.paused = False
            if state.stripped:  # the next step of the model fails
                state.dead = True
                state.epoch += 1
            state.changed.notify_all()
        self.answer(200, {"status": "resumed"})

    def reload(self, _query, body, _fault):
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

    def set_version(self, _query, body, fault):
        if fault != "ignored":
            with self.server_state.changed:
                self.server_state.version = body["new_version"]
        self.answer(200, {"success": True, "new_version": body["new_version"]})

    def weight_info(self, _query, _body, _fault):
        self.answer(200, {"weight_version": self.server_state.version})

    def reset_prefix_cache(self, _query, _body, _fault):
        self.answer(200, {"success": self.server_state.running == 0})

    def abort(self, _query, body, _fault):
        state = self.server_state
        with state.changed:
            state.aborted.update(body["request_ids"])
            state.changed.notify_all()
        self.answer(200, None)

    def generate(self, _query, body, fault):
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
            return self.error(500, "the engine encountered an issue")
        self.begin_stream()
        try:
            self.stream("generate-tokens-" + body["request_id"], list(tokens), params, fault)
        except ConnectionError:
            pass
        finally:
            self.end_answer()
        return None

    def stream(self, request, tokens, params, fault):
        state = self.server_state
        most = min(params["max_tokens"], state.max_len - len(tokens))
        every = params.get("stream_interval") or 1
        spans, waiting, count, reason, stop = [], [], 0, None, None
        with state.changed:
            epoch = state.epoch
            self.begin_answer()
        while reason is None:
            with state.changed:
                self.await_token(lambda: state.epoch != epoch or request in state.aborted or not (
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
                if reason is not None:
                    self.end_answer()
                self.event(self.piece(request, waiting, reason, stop, spans, fault))
                if fault == "break":
                    return
                waiting = []
        self.end_stream()

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


if __name__ == "__main__":
    fake_server.serve(Handler)
