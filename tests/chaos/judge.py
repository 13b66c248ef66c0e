"""An OpenAI-compatible server whose model gives every response the best score.

    judge.py PORT
"""
import http.server
import json
import sys
import time

SECONDS = 0.01  # of an answer


class Judge(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        try:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            schema = request["response_format"]["json_schema"]["schema"]
            best = schema["properties"]["score"]["maximum"]
            model, messages = request["model"], request["messages"]
        except (KeyError, TypeError, ValueError) as error:
            return self.answer(400, {"error": {"message": f"{type(error).__name__}: {error}"}})
        if self.path != "/v1/chat/completions" or [message["role"] for message in messages] != ["system", "user"]:
            return self.answer(404, {"error": {"message": "no such request"}})
        time.sleep(SECONDS)
        content = json.dumps({"reason": "it is good", "score": best})
        return self.answer(200, {"id": "1", "object": "chat.completion", "created": int(time.time()), "model": model,
                                 "choices": [{"index": 0, "finish_reason": "stop",
                                              "message": {"role": "assistant", "content": content}}],
                                 "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256  # connections that wait while it is stopped; a refused one would try again after 1 s


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Judge).serve_forever()
