#!/usr/bin/env python3
"""A server with the HTTP interface of SGLang, as far as Freshet uses it. See fake_server.py."""
import fake_server


class Handler(fake_server.Handler):
    routes = {
        "/generate": "generate", "/abort_request": "abort", "/model_info": "model_info",
        "/pause_generation": "pause", "/continue_generation": "resume",
        "/update_weights_from_disk": "load", "/update_weight_version": "set_version",
    }

    def pause(self, _query, body, _fault):
        if body.get("mode", "abort") != "abort":
            return self.error(400, "the fake only pauses with mode abort")
        state = self.server_state
        with state.changed:
            state.paused = True
            state.aborted |= state.requests
            state.changed.notify_all()
            state.changed.wait_for(lambda: not state.requests)
        return self.answer(200, {"status": "ok"})

    def resume(self, _query, body, _fault):
        if not isinstance(body, dict):
            return self.error(422, "the body is missing")
        with self.server_state.changed:
            self.server_state.paused = False
            self.server_state.changed.notify_all()
        return self.answer(200, {"status": "ok"})

    def load(self, _query, body, fault):
        state = self.server_state
        with state.changed:
            if not state.paused or state.requests:
                return self.answer(400, {"success": False, "message": "requests are running"})
            try:
                if fault == "failed":
                    raise ValueError("a tensor is missing")
                state.load(body["model_path"])
            except (OSError, ValueError) as error:
                return self.answer(400, {"success": False, "message": str(error)})
            state.served = body["model_path"]
            if fault != "ignored":
                state.version = body["weight_version"]
        return self.answer(200, {"success": fault != "unsuccessful", "message": "", "num_paused_requests": 0})

    def set_version(self, _query, body, fault):
        with self.server_state.changed:
            if fault != "ignored":
                self.server_state.version = body["new_version"]
        self.answer(200, {"success": True, "new_version": body["new_version"]})

    def model_info(self, _query, _body, _fault):
        state = self.server_state
        self.answer(200, {"model_path": state.served, "is_generation": True, "weight_version": state.version})

    def abort(self, _query, body, _fault):
        """An id ends all requests that begin with it; one that is not running has no effect."""
        state = self.server_state
        with state.changed:
            if body.get("abort_all"):
                state.aborted |= state.requests
            elif body["rid"] in state.requests:
                state.aborted |= {rid for rid in state.requests if rid.startswith(body["rid"])}
            state.changed.notify_all()
        self.answer(200, None)

    def generate(self, _query, body, fault):
        state = self.server_state
        rid, tokens = body["rid"], list(body["input_ids"])
        with state.changed:
            epoch = state.epoch
            state.changed.wait_for(lambda: state.epoch != epoch or not state.paused)
            if state.epoch != epoch:
                return
            state.requests.add(rid)
            self.begin_answer()
        try:
            self.begin_stream()
            if not tokens or min(tokens) < 0 or max(tokens) >= state.vocab or len(tokens) >= state.max_len:
                self.event({"error": {"message": "bad input_ids"}})
            else:
                self.stream(rid, tokens, body["sampling_params"], fault, epoch)
        except ConnectionError:
            pass
        finally:
            self.end(rid)

    def end(self, rid):
        with self.server_state.changed:
            self.server_state.requests.discard(rid)
            self.server_state.aborted.discard(rid)
        self.end_answer()

    def stream(self, rid, tokens, params, fault, epoch):
        state = self.server_state
        # The server silently generates less than it is asked for.
        most = min(params["max_new_tokens"], state.max_len - len(tokens) - 2)
        every = params.get("stream_interval") or 1
        answer, sent, reason = [], 0, None
        while reason is None:
            with state.changed:
                self.await_token(lambda: state.epoch != epoch or rid in state.aborted or
                                 state.hold_after is None or len(answer) < state.hold_after)
                if state.epoch != epoch:
                    return  # the stream breaks off
                if rid in state.aborted:
                    reason = {"type": "abort", "message": "Abort"}
                else:
                    token, logprob = state.next_token(tokens, params.get("sampling_seed") or 0)
            if reason is None:
                tokens.append(token)
                answer.append([logprob, token, None])
                if len(answer) == most:
                    reason = {"type": "length", "length": most}
                elif not params["ignore_eos"] and token in params.get("stop_token_ids", []):
                    reason = {"type": "stop", "matched": token}
            if reason is not None or len(answer) - sent >= every or len(answer) == 1:
                if fault == "truncate":
                    self.chunk('data: {"output_ids": [')
                    return
                piece = self.piece(rid, answer, sent, reason, fault)
                if reason is not None:
                    self.end(rid)
                self.event(piece)
                if fault == "break":
                    return
                sent = len(answer)
        self.end_stream()

    def piece(self, rid, answer, sent, reason, fault):
        state = self.server_state
        aborted = reason is not None and reason["type"] == "abort"
        entries = answer[0 if state.cumulative or aborted else sent :]
        ids = [entry[1] for entry in entries]
        if aborted:
            ids = ids[-1:]
        if fault == "wrong_count":
            entries = entries[:-1]
        if fault == "not_finite":
            entries = entries[:-1] + [[None, ids[-1], None]]
        if fault == "outside":
            ids[-1] = state.vocab
            entries = entries[:-1] + [[-0.5, ids[-1], None]]
        if fault == "stream_error":
            reason = {"type": "abort", "message": "the engine failed", "status_code": 500}
        return {"output_ids": ids, "meta_info": {
            "id": rid, "finish_reason": reason, "prompt_tokens": 1, "completion_tokens": len(answer),
            "weight_version": "default" if fault == "old_version" else state.version,
            "output_token_logprobs": entries}}


if __name__ == "__main__":
    fake_server.serve(Handler)
