"""An agent written against OpenAI's API, served to Freshet: it may look a number up with a tool.

    pip install openai
    python examples/python/openai_agent.py 127.0.0.1:7200
    freshet local JOB.yaml      # environment: {type: openai_agent, address: "127.0.0.1:7200"}

Freshet posts one task per episode; the answer is the reward. The agent is an ordinary program: only
`base_url` and `api_key` tell it where to generate.
"""

import http.server
import json
import sys

import openai

TOOLS = [{"type": "function", "function": {
    "name": "lookup", "description": "the number of today",
    "parameters": {"type": "object", "properties": {}}}}]
MAX_TURNS = 3
# Shares its connections. Address and key belong to the episode.
CLIENT = openai.OpenAI(base_url="http://127.0.0.1/v1", api_key="none")


def play(task):
    """One episode. With the option `tool: "no"` the agent has no tool: a control run."""
    client = CLIENT.with_options(base_url=task["base_url"], api_key=task["api_key"])
    tools = openai.omit if task["options"].get("tool") == "no" else TOOLS
    messages = [{"role": "user", "content": task["prompt"]}]
    looked_up = 0.0
    for _ in range(MAX_TURNS):
        try:
            message = client.chat.completions.create(
                model=task["model"], messages=messages, tools=tools).choices[0].message
        except openai.BadRequestError:  # the conversation has used rollout.max_new_tokens
            return {"reward": 0.0, "truncated": True}
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            right = (message.content or "").startswith(task["row"]["answer"])
            return {"reward": 1.0 if right else looked_up}
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": task["row"]["answer"]})
        looked_up = 0.2
    return {"reward": 0.0}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(play(task)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    with Server((host, int(port)), Handler) as server:
        print(f"agent on {host}:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
