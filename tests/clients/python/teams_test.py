"""Teams: tasks of several jobs that are played as one episode."""

import http.client
import http.server
import json
import threading
import unittest

from freshet.teams import EpisodeFailed, Team, TeamServer, sample_key

SECONDS = 30


def task(job, ordinal=5, index=2, attempt=1, **more):
    return {
        "base_url": "http://127.0.0.1:9/v1",
        "api_key": job,
        "model": job,
        "sample": f"{job}/{ordinal}/{attempt}/{index}",
        "timeout_s": SECONDS,
        "row": {"question": job},
        **more,
    }


def rewarded(reward):
    """The answer to a member, whether it was asked or not."""
    return {"reward": reward, "requests_optional": True}


class ArrivingTeam(Team):
    """Says when a task waits."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.arrived = threading.Semaphore(0)

    def on_waiting(self):
        self.arrived.release()


class Calls:
    """Answers of Team.play, each on a thread of its own."""

    def __init__(self, team):
        self.team = team
        self.threads = []
        self.answers = {}

    def start(self, label, name, sent):
        def call():
            self.answers[label] = self.team.play(name, sent)

        self.threads.append(threading.Thread(target=call))
        self.threads[-1].start()

    def join(self):
        for thread in self.threads:
            thread.join(SECONDS)
        return self.answers


class TeamTest(unittest.TestCase):
    def play(self, episode, *tasks, patience=SECONDS):
        calls = Calls(Team(episode, ["planner", "worker"], patience=patience))
        for number, (name, sent) in enumerate(tasks):
            calls.start(number, name, sent)
        answers = calls.join()
        self.assertEqual(calls.team.waiting, 0)
        return [answers[number] for number in range(len(tasks))]

    def test_members_of_the_same_sample_share_an_episode(self):
        played = []

        def episode(members, row):
            played.append((row, {name: member.task["sample"] for name, member in members.items()}))
            return {"planner": 1, "worker": 0.25} if "/5/" in members["worker"].task["sample"] else 7

        answers = self.play(
            episode,
            ("planner", task("p", 5)),
            ("planner", task("p", 6)),
            ("worker", task("w", 6, attempt=9)),
            ("worker", task("w", 5)),
        )
        self.assertEqual(
            answers, [(200, rewarded(1)), (200, rewarded(7)), (200, rewarded(7)), (200, rewarded(0.25))]
        )
        self.assertIn(({"question": "p"}, {"planner": "p/6/1/2", "worker": "w/6/9/2"}), played)
        self.assertEqual(len(played), 2)

    def test_a_failed_episode_fails_every_member_and_rewards_none(self):
        def broken(members, row):
            raise EpisodeFailed("no answer")

        for episode, text in (
            (broken, "EpisodeFailed: no answer"),
            (lambda members, row: float("nan"), "not finite"),
            (lambda members, row: {"planner": 1}, "KeyError"),
            (lambda members, row: "good", "ValueError"),
        ):
            for status, answer in self.play(episode, ("planner", task("p")), ("worker", task("w"))):
                self.assertEqual(status, 503)
                self.assertIn(text, answer["error"])

    def test_a_sample_whose_partners_are_past_it_is_lost_after_the_patience(self):
        now = [0.0]
        calls = Calls(Team(lambda members, row: 1, ["planner", "worker"], patience=300.0, clock=lambda: now[0]))
        for ordinal in (5, 6):
            calls.start(0, "planner", task("p", ordinal))
            calls.start(1, "worker", task("w", ordinal))
            calls.join()

        def status(name, *arguments, **more):
            return calls.team.play(name, task(name[0], *arguments, timeout_s=0.02, **more))[0]

        self.assertEqual(status("worker"), 503)
        now[0] = 300.0
        self.assertEqual(status("worker"), 503)  # the planner's job may be about to start again
        self.assertEqual(status("planner", 4), 503)
        self.assertEqual(status("worker"), 503)
        self.assertEqual(status("worker", 6), 503)
        self.assertEqual(status("planner", 7), 503)
        now[0] = 599.0
        self.assertEqual(status("worker", 6), 503)  # it may be of the planner's faster rollout
        now[0] = 600.0
        self.assertEqual(status("worker", 6), 422)
        for attempt in (1, 2):
            self.assertEqual(status("worker", attempt=attempt), 422)

    def test_jobs_that_start_again_play_again(self):
        for job in ("p", "another"):
            calls = Calls(ArrivingTeam(lambda members, row: 1, ["planner", "worker"]))
            calls.start(0, "planner", task("p"))
            calls.start(1, "worker", task("w"))
            calls.join()
            calls.team.arrived.acquire(timeout=SECONDS)
            calls.start(2, "planner", task(job))
            self.assertTrue(calls.team.arrived.acquire(timeout=SECONDS))
            calls.start(3, "worker", task("w"))
            self.assertEqual(list(calls.join().values()), [(200, rewarded(1))] * 4)

    def test_who_is_missing_is_said(self):
        ((status, answer),) = self.play(lambda members, row: 1, ("planner", task("p")), patience=0.01)
        self.assertEqual((status, answer), (503, {"error": "no task of worker for prompt 5, sample 2"}))

    def test_a_later_task_for_a_sample_replaces_the_earlier_one(self):
        calls = Calls(ArrivingTeam(lambda members, row: float(members["planner"].task["sample"].split("/")[2]), ["planner", "worker"]))
        calls.start("old", "planner", task("p", attempt=1))
        calls.team.arrived.acquire(timeout=SECONDS)
        calls.start("new", "planner", task("p", attempt=2))
        calls.threads[0].join(SECONDS)
        calls.start("worker", "worker", task("w"))
        answers = calls.join()
        self.assertEqual(answers["old"][0], 503)
        self.assertEqual(answers["new"], (200, rewarded(2)))
        self.assertEqual(answers["worker"], (200, rewarded(2)))

    def test_a_task_that_is_no_sample_is_refused(self):
        for sent in ({}, task("p", sample="x"), task("p", sample="a/b/c/d"), task("p", timeout_s=None)):
            ((status, _),) = self.play(lambda members, row: 1, ("planner", sent))
            self.assertEqual(status, 400)
        self.assertEqual(sample_key("a/job/12/0/3"), (12, 3))

    def test_members_must_be_distinct(self):
        with self.assertRaises(ValueError):
            Team(lambda members, row: 1, [])
        with self.assertRaises(ValueError):
            Team(lambda members, row: 1, ["a"], {"a": {}})


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Says back who asks for what; 400 for "bad"."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = f"{self.headers['Authorization']} {self.path} {body.get('prompt') or body['messages']}"
        answer = json.dumps({"choices": [{"text": said, "message": {"role": "assistant", "content": said}}]}).encode()
        self.send_response(400 if body.get("prompt") == "bad" else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class TeamServerTest(unittest.TestCase):
    def setUp(self):
        endpoint = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        self.addCleanup(endpoint.server_close)
        self.addCleanup(endpoint.shutdown)
        self.url = f"http://127.0.0.1:{endpoint.server_address[1]}/v1"

    def post(self, address, body, path="/"):
        connection = http.client.HTTPConnection(address, timeout=SECONDS)
        self.addCleanup(connection.close)
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def serve(self, episode, **more):
        server = TeamServer(Team(episode, ["planner"], **more), {"planner": "127.0.0.1:0"})
        self.addCleanup(server.stop)
        return server.addresses["planner"]

    def test_every_member_speaks_through_its_own_endpoint(self):
        said = []

        def episode(members, row):
            said.append(members["planner"].complete("2+3", max_tokens=1))
            said.append(members["judge"].chat([{"role": "user", "content": "x"}])["content"])
            return 1

        address = self.serve(episode, frozen={"judge": {"base_url": self.url, "model": "m"}})
        self.assertEqual(self.post(address, json.dumps(task("p", base_url=self.url))), (200, rewarded(1)))
        self.assertEqual(said[0], "Bearer p /v1/completions 2+3")
        self.assertTrue(said[1].startswith("Bearer none /v1/chat/completions [{"), said[1])

    def test_a_refused_or_lost_generation_fails_the_episode(self):
        address = self.serve(lambda members, row: members["planner"].complete("bad"))
        status, answer = self.post(address, json.dumps(task("p", base_url=self.url)))
        self.assertEqual(status, 503)
        self.assertIn("planner: status 400", answer["error"])
        status, answer = self.post(address, json.dumps(task("p", base_url="http://127.0.0.1:1/v1")))
        self.assertEqual(status, 503)
        self.assertIn("planner: ", answer["error"])

    def test_with_a_token_other_paths_are_refused(self):
        server = TeamServer(Team(lambda members, row: 1, ["a"]), {"a": "127.0.0.1:0"}, token="secret")
        self.addCleanup(server.stop)
        self.assertEqual(self.post(server.addresses["a"], json.dumps(task("a")))[0], 404)
        self.assertEqual(self.post(server.addresses["a"], json.dumps(task("a")), "/secret")[0], 200)

    def test_bodies_that_are_no_task_are_refused(self):
        address = self.serve(lambda members, row: 1)
        for body in ("", "{", "[]", "[" * 100_000, b"\xff\xfe"):
            self.assertEqual(self.post(address, body)[0], 400)

    def test_other_than_loopback_needs_permission(self):
        with self.assertRaises(ValueError):
            TeamServer(Team(lambda members, row: 1, ["a"]), {"a": "0.0.0.0:0"})


if __name__ == "__main__":
    unittest.main()
