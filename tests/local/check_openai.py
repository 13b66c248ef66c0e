#!/usr/bin/env python3
"""Tests `freshet serve` with the openai package, and `freshet generate` and `chat`.

usage: check_openai.py FOLDER_OF_PROGRAMS

Exits with 77 (skipped) if the openai package is missing. The variable FRESHET_TEST_PYTHON selects
another interpreter.
"""

import asyncio
import http.client
import importlib.util
import json
import os
import pathlib
import signal
import socket
import string
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
TIMEOUT_S = 120
SESSIONS = 200
FLOOD = 2000
MAX_WAITING = 64
TOOLS = [{"type": "function", "function": {
    "name": "add", "description": "adds", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}]
REST = string.ascii_lowercase[1:]


def user(text):
    return [{"role": "user", "content": text}]


class Served(unittest.TestCase):
    """One server for all tests of the class."""

    flags = []

    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen(
            [PROGRAMS / "freshet", "serve", MODEL, "--listen", "127.0.0.1:0", "--name", "counting",
             *cls.flags], stdout=subprocess.PIPE, text=True)
        line = cls.process.stdout.readline()
        if not line.startswith("serving on http://"):
            raise AssertionError(f"freshet serve printed {line!r}")
        cls.url = line.split()[-1]
        cls.base_url = cls.url + "/v1"
        cls.client = openai.OpenAI(base_url=cls.base_url, api_key="any", timeout=TIMEOUT_S,
                                   max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.process.send_signal(signal.SIGTERM)
        code = cls.process.wait(timeout=TIMEOUT_S)
        cls.process.stdout.close()
        if code != 0:
            raise AssertionError(f"freshet serve exited with {code}")

    def complete(self, prompt="a", **options):
        return self.client.completions.create(
            **({"model": "counting", "prompt": prompt, "max_tokens": 40} | options))

    def chat(self, messages, **options):
        return self.client.chat.completions.create(model="counting", messages=messages, **options)


class Completions(Served):
    def test_lists_the_model(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["counting"])
        self.assertEqual(self.client.models.retrieve("counting").id, "counting")

    def test_completes_text(self):
        answer = self.complete()
        self.assertEqual(answer.choices[0].text, REST)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.prompt_tokens, 1)
        self.assertEqual(answer.usage.completion_tokens, len(REST) + 1)

    def test_streams_text(self):
        chunks = list(self.complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks if chunk.choices), REST)
        self.assertEqual(chunks[-1].usage.completion_tokens, len(REST) + 1)

    def test_prompts_and_samples_are_numbered(self):
        answer = self.complete(prompt=[[64], [88]], n=2, max_tokens=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertEqual([choice.text for choice in answer.choices], ["bc", "bc", "z", "z"])

    def test_stop_strings_are_cut(self):
        answer = self.complete(stop=["no", "fgh"])
        self.assertEqual(answer.choices[0].text, "bcde")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual("".join(chunk.choices[0].text
                                 for chunk in self.complete(stop="fgh", stream=True)), "bcde")

    def test_logprobs_token_ids_and_versions(self):
        choice = self.complete(max_tokens=2, logprobs=2,
                               extra_body={"return_token_ids": True}).choices[0]
        self.assertEqual(choice.logprobs.tokens, ["b", "c"])
        self.assertAlmostEqual(choice.logprobs.token_logprobs[0], 0, places=4)
        self.assertIn("b", choice.logprobs.top_logprobs[0])
        self.assertEqual(choice.token_ids, [65, 66])
        self.assertEqual(choice.prompt_token_ids, [64])
        self.assertEqual(choice.weight_versions, [{"version": "0.0", "start": 0, "end": 2}])

    def test_characters_are_never_split(self):
        chunks = [chunk.choices[0].text for chunk in self.complete(prompt="#", stream=True)]
        self.assertEqual([text for text in chunks if text], ["é"])

    def test_errors_name_the_parameter(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(max_tokens=100_000)
        self.assertEqual(caught.exception.param, "max_tokens")
        self.assertIn("context of 512", caught.exception.message)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt="b" * 600)
        self.assertEqual(caught.exception.param, "prompt")
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="other", prompt="a")

    def test_a_stream_can_be_closed(self):
        with self.complete(stream=True) as stream:
            next(iter(stream))
        self.assertEqual(self.complete(max_tokens=1).choices[0].text, "b")


class Chats(Served):
    def test_answers(self):
        answer = self.chat(user("hello"))
        self.assertEqual(answer.choices[0].message.content, string.ascii_lowercase)
        self.assertEqual(answer.choices[0].message.role, "assistant")

    def test_text_of_users_has_no_control_tokens(self):
        ids = [self.chat(user(text), max_tokens=1, extra_body={"return_token_ids": True})
               .prompt_token_ids for text in ("<|end|>", "plain")]
        self.assertEqual([262 + 3 in prompt for prompt in ids], [False, False])

    def test_streams(self):
        chunks = list(self.chat(user("hello"), stream=True, max_completion_tokens=3))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        self.assertEqual(text, "abc")
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")

    def test_logprobs(self):
        choice = self.chat(user("hello"), logprobs=True, top_logprobs=2, max_tokens=1).choices[0]
        self.assertEqual(choice.logprobs.content[0].token, "a")
        self.assertEqual(len(choice.logprobs.content[0].top_logprobs), 2)

    def test_an_agent_loop_calls_a_tool(self):
        messages = user("what is 1 + 2?")
        answer = self.chat(messages, tools=TOOLS).choices[0]
        self.assertEqual(answer.finish_reason, "tool_calls")
        call = answer.message.tool_calls[0]
        self.assertEqual(call.function.name, "add")
        arguments = json.loads(call.function.arguments)
        messages.append(answer.message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id,
                         "content": str(arguments["a"] + arguments["b"])})
        answer = self.chat(messages, tools=TOOLS).choices[0]
        self.assertEqual(answer.message.content, "The sum is 3.")
        self.assertEqual(answer.finish_reason, "stop")

    def test_tool_calls_are_streamed(self):
        with self.client.chat.completions.stream(model="counting", messages=user("1 + 2?"),
                                                 tools=TOOLS) as stream:
            message = stream.get_final_completion().choices[0].message
        self.assertEqual(message.tool_calls[0].function.name, "add")
        self.assertEqual(json.loads(message.tool_calls[0].function.arguments), {"a": 1, "b": 2})

    def test_many_sessions_at_once(self):
        async def session(client, number):
            messages = user(f"I am {number}")
            for _ in range(2):
                stream = await client.chat.completions.create(
                    model="counting", messages=messages, stream=True, max_tokens=3)
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
                messages += [{"role": "assistant", "content": text}, *user("go on")]
            return text

        async def sessions():
            async with openai.AsyncOpenAI(base_url=self.base_url, api_key="any", max_retries=0,
                                          timeout=TIMEOUT_S) as client:
                return await asyncio.gather(*(session(client, i) for i in range(SESSIONS)))

        self.assertEqual(set(asyncio.run(sessions())), {"abc"})


class Overload(Served):
    flags = ["--max-waiting", str(MAX_WAITING), "--max-sequences", "4"]

    def test_a_flood_is_answered(self):
        """Every request gets an answer or status 429, and the server works on."""
        async def one(client):
            try:
                await client.completions.create(model="counting", prompt="a", max_tokens=2)
                return 200
            except openai.APIStatusError as error:
                return error.status_code

        async def flood():
            async with openai.AsyncOpenAI(base_url=self.base_url, api_key="any", max_retries=0,
                                          timeout=TIMEOUT_S) as client:
                return await asyncio.gather(*(one(client) for _ in range(FLOOD)))

        statuses = asyncio.run(flood())
        self.assertLessEqual(set(statuses), {200, 429})
        self.assertGreater(statuses.count(200), 0)
        self.assertEqual(self.complete(max_tokens=1).choices[0].text, "b")

    def test_bad_bodies(self):
        host, port = self.url.removeprefix("http://").split(":")
        for body, status in ((b"{", 400), (b"[" * 10_000, 400), (b"\xff" * 100, 400),
                             (b"{}" + b" " * (8 << 20), 413)):
            connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
            try:
                connection.request("POST", "/v1/completions", body,
                                   {"Content-Type": "application/json"})
                response = connection.getresponse()
                self.assertEqual(response.status, status)
                self.assertEqual(json.loads(response.read())["error"]["code"], status)
            except BrokenPipeError:
                self.assertEqual(status, 413)  # refused before it was sent
            finally:
                connection.close()

    def test_a_client_that_stops_reading_disturbs_nobody(self):
        host, port = self.url.removeprefix("http://").split(":")
        body = json.dumps({"prompt": ["c"] * 64, "stream": True, "max_tokens": 500,
                           "ignore_eos": True, "logprobs": 20}).encode()
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            self.assertTrue(lazy.recv(16))
            self.assertEqual(self.complete(max_tokens=1).choices[0].text, "b")


class Commands(unittest.TestCase):
    def freshet(self, *args, text=""):
        return subprocess.run([PROGRAMS / "freshet", *args], input=text, capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)

    def test_generate_writes_text(self):
        result = self.freshet("generate", MODEL, "a", "--greedy")
        self.assertEqual((result.returncode, result.stdout), (0, REST + "\n"), result.stderr)
        result = self.freshet("generate", MODEL, "a", "--stop", "fgh", "--max-new-tokens", "20")
        self.assertEqual(result.stdout, "bcde\n")

    def test_generate_names_a_prompt_beyond_the_context(self):
        result = self.freshet("generate", MODEL, "a" * 600)
        self.assertEqual(result.returncode, 3)
        self.assertIn("context of 512", result.stderr)

    def test_generate_wants_one_input(self):
        self.assertEqual(self.freshet("generate", MODEL).returncode, 2)
        self.assertEqual(self.freshet("generate", MODEL, "a", "--ids", "ids",
                                      "--max-new-tokens", "1").returncode, 2)

    def test_chat_answers_each_line(self):
        result = self.freshet("chat", MODEL, "--max-new-tokens", "3", text="hi\n\nbye\n")
        self.assertEqual((result.returncode, result.stdout), (0, "abc\nabc\n"), result.stderr)

    def test_chat_ends_when_the_context_is_full(self):
        result = self.freshet("chat", MODEL, text="a" * 600 + "\n")
        self.assertEqual(result.returncode, 3)
        self.assertIn("context of 512", result.stderr)

    def test_serve_refuses_other_addresses_than_loopback(self):
        for listen, part in (("0.0.0.0:0", "--insecure"), ("nowhere", "HOST:PORT"),
                             ("a.example:80", "neither an IP address nor localhost")):
            result = self.freshet("serve", "no-model", "--listen", listen)
            self.assertEqual(result.returncode, 2)
            self.assertIn("--listen", result.stderr)
            self.assertIn(part, result.stderr)

    def test_serve_reads_the_key_before_the_model(self):
        result = self.freshet("serve", "no-model", "--api-key-file", "no-key")
        self.assertEqual(result.returncode, 3)
        self.assertIn("no-key", result.stderr)

    def test_bad_flags_are_named(self):
        for flag, value in (("--stop", ""), ("--max-new-tokens", "0"), ("--temperature", "1e-5"),
                            ("--kv-cache-bytes", "0")):
            result = self.freshet("generate", MODEL, "a", flag, value)
            self.assertEqual(result.returncode, 2, flag)
            self.assertIn(flag, result.stderr)
        result = self.freshet("generate", MODEL, "a", "--kv-cache-bytes", "1")
        self.assertEqual(result.returncode, 3)
        self.assertIn("--kv-cache-bytes", result.stderr)
        result = self.freshet("generate", MODEL, "a", "--device", "gpu")
        self.assertEqual(result.returncode, 3)
        self.assertIn("device gpu is not auto, cpu, cuda or cuda:N", result.stderr)

    def test_what_runs_when_the_drain_is_over_gets_an_error(self):
        process = subprocess.Popen(
            [PROGRAMS / "freshet", "serve", MODEL, "--listen", "127.0.0.1:0", "--name", "counting",
             "--drain-timeout-s", "0"], stdout=subprocess.PIPE, text=True)
        host, port = process.stdout.readline().split("//")[1].strip().split(":")
        body = json.dumps({"prompt": ["c"] * 64, "stream": True, "max_tokens": 500, "n": 64,
                           "ignore_eos": True})
        connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        process.send_signal(signal.SIGTERM)
        text = response.read().decode()
        self.assertIn('"code":503', text)
        self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-200:])
        connection.close()
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 0)
        process.stdout.close()


if __name__ == "__main__":
    interpreter = os.environ.pop("FRESHET_TEST_PYTHON", "")
    if interpreter:
        os.execv(interpreter, [interpreter, *sys.argv])
    if not importlib.util.find_spec("openai"):
        print(f"skipped: {sys.executable} lacks openai; pip install it")
        sys.exit(SKIPPED)
    import openai

    from counting_model import write_model

    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        MODEL = pathlib.Path(scratch) / "model"
        write_model(MODEL)
        program = unittest.main(exit=False, verbosity=2)
    sys.exit(0 if program.result.wasSuccessful() else 1)
