"""freshet.Client with recorded answers."""

import fcntl
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import freshet
import grpc
from freshet.connection import read_token
from freshet.job.v1 import job_service_pb2 as pb
from recorded_service import Fault, RecordedCase, RecordedService, error_details, job, state, step

UNAVAILABLE = Fault(grpc.StatusCode.UNAVAILABLE, "goes down")
YAML = "name: a\nmodel:\n  path: my-model\n"


class ClientTest(RecordedCase):
    def calls(self, method):
        return len(self.service.requests[method])

    # Submit.

    def test_submit_sends_text_overrides_and_priority(self):
        self.service.answer("Submit", job("x"))
        submitted = self.client.submit(
            YAML, id="x", set={"trainer.steps": 4, "a": True, "b": [1, 2]}, priority=7
        )
        request = self.service.requests["Submit"][0]
        self.assertEqual((request.job_id, request.yaml, request.priority), ("x", YAML, 7))
        self.assertEqual(list(request.overrides), ["trainer.steps=4", "a=true", "b=[1, 2]"])
        self.assertEqual((submitted.id, submitted.state, submitted.steps), ("x", "RUNNING", 3))

    def test_a_job_has_its_evaluations_by_name(self):
        greedy = pb.Evaluation(name="greedy", policy_version=10, accuracy=0.5)
        sampled = pb.Evaluation(name="sampled", policy_version=10, pass_at={1: 0.25, 16: 0.75})
        self.service.answer("Get", job("x", evaluations=[greedy, sampled]))
        evaluations = self.client.get("x").evaluations
        self.assertEqual(list(evaluations), ["greedy", "sampled"])
        self.assertEqual(evaluations["greedy"].accuracy, 0.5)
        self.assertEqual(evaluations["sampled"].pass_at[16], 0.75)

    def test_submit_makes_the_paths_of_files_absolute(self):
        self.service.answer("Submit", job("x"))
        text = "dataset: {path: a.txt, eval_path: gone.txt}\neval: {sets: [{name: s}, {path: a.txt}]}\n"
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                pathlib.Path("a.txt").write_text("x")
                pathlib.Path("b.txt").write_text("x")
                self.client.submit(text, id="x", set={"dataset.eval_path": "b.txt", "name": "a.txt"})
            finally:
                os.chdir(before)
            here = os.path.realpath(folder)
        overrides = list(self.service.requests["Submit"][0].overrides)
        self.assertEqual(
            sorted(overrides[2:]),
            [
                f"dataset.eval_path={here}/b.txt",
                f"dataset.path={here}/a.txt",
                f"eval.sets.1.path={here}/a.txt",
            ],
        )

    def team(self, *submitted, known=()):
        absent = Fault(grpc.StatusCode.NOT_FOUND, "no such job")
        self.service.answer("Validate", pb.ValidateReply(), pb.ValidateReply())
        self.service.answer("Get", *(job(id) if id in known else absent for id in ("t-a", "t-b")))
        self.service.answer("Submit", *submitted)
        text = "name: n\nseed: 1\npolicies:\n  a: {seed: 2}\n  b:\n"
        return self.client.submit_team(text, id="t", set={"policies.b.seed": 3})

    def test_a_team_is_validated_and_submitted(self):
        jobs = self.team(job("t-a"), job("t-b"))
        self.assertEqual({policy: made.id for policy, made in jobs.items()}, {"a": "t-a", "b": "t-b"})
        sent = [(r.job_id, r.policy, list(r.overrides)) for r in self.service.requests["Submit"]]
        overrides = ["policies.b.seed=3", "team=t"]
        self.assertEqual(sent, [("t-a", "a", overrides), ("t-b", "b", overrides)])
        self.assertEqual([r.policy for r in self.service.requests["Validate"]], ["a", "b"])

    def test_agents_of_a_team_need_the_same_group_size(self):
        for size in (8, 4):
            spec = {"environment": {"type": "openai_agent"}, "group_size": size}
            self.service.answer("Validate", pb.ValidateReply(spec=spec))
        self.service.answer("Get", Fault(grpc.StatusCode.NOT_FOUND, "no such job"))
        with self.assertRaisesRegex(freshet.InvalidJob, "^group_size: .*a has 8, b has 4$"):
            self.client.submit_team("name: n\npolicies:\n  a:\n  b:\n", id="t")
        self.assertEqual(self.calls("Submit"), 0)

    def test_jobs_of_a_refused_team_are_cancelled_unless_they_existed(self):
        refused = Fault(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many jobs")
        self.service.answer("Cancel", job("t-a"))
        with self.assertRaises(freshet.FreshetError):
            self.team(job("t-a"), refused, refused, refused, refused)
        self.assertEqual([r.job_id for r in self.service.requests["Cancel"]], ["t-a"])

    def test_jobs_of_a_refused_team_that_existed_go_on(self):
        refused = Fault(grpc.StatusCode.ALREADY_EXISTS, "another spec")
        with self.assertRaises(freshet.FreshetError):
            self.team(job("t-a"), refused, known=("t-a",))
        self.assertEqual(self.calls("Cancel"), 0)

    def test_a_job_whose_submit_was_not_answered_is_cancelled_too(self):
        self.service.answer("Cancel", Fault(grpc.StatusCode.INTERNAL, "disk full"), job("t-b"))
        with self.assertRaisesRegex(freshet.ConnectionLost, "cancel them: t-a$"):
            self.team(job("t-a"), UNAVAILABLE)
        self.assertEqual([r.job_id for r in self.service.requests["Cancel"]], ["t-a", "t-b"])

    def test_a_job_that_is_not_found_may_still_be_created_by_a_lost_server(self):
        absent = Fault(grpc.StatusCode.NOT_FOUND, "no such job")
        self.service.answer("Cancel", job("t-a"), absent)
        with self.assertRaisesRegex(freshet.ConnectionLost, "cancel them: t-b$"):
            self.team(job("t-a"), UNAVAILABLE)

    def test_a_team_with_a_cancelled_job_is_refused(self):
        self.service.answer("Get", job("t-a", state=pb.JOB_STATE_CANCELLED))
        with self.assertRaisesRegex(freshet.Refused, "job t-a was cancelled; choose another id"):
            self.team(job("t-a"))
        self.assertEqual(self.calls("Submit"), 0)

    def test_ids_and_names_of_a_team_are_checked_before_any_call(self):
        text = "name: n\npolicies:\n  a: {seed: 2}\n  b:\n"
        numbered, negated = text.replace("b:", "1:"), text.replace("b:", "no:")
        for bad, id in ((text, "t" * 62), (text, "a b"), (numbered, "t"), (negated, "t")):
            with self.assertRaisesRegex(ValueError, "letters, digits|quote the policy's name"):
                self.client.submit_team(bad, id=id)
        self.assertFalse(self.service.requests)

    def test_the_id_of_a_team_leaves_room_for_its_policies(self):
        self.service.answer("Validate", pb.ValidateReply())
        self.service.answer("Get", Fault(grpc.StatusCode.NOT_FOUND, "no such job"))
        self.service.answer("Submit", job("x"))
        text = f"name: n\npolicies:\n  a:\n  {'b' * 30}:\n"
        self.client.submit_team(text, set={"name": "m" * 60})
        ids = [r.job_id for r in self.service.requests["Submit"]]
        self.assertEqual(len(ids[1]), 63)
        self.assertRegex(ids[0], "^m+-[0-9a-f]{8}-a$")

    def test_a_file_without_policies_is_no_team(self):
        with self.assertRaisesRegex(ValueError, "no map `policies`"):
            self.client.submit_team(YAML)

    def test_submit_with_an_id_is_repeated(self):
        self.service.answer("Submit", UNAVAILABLE, UNAVAILABLE, job("x"))
        self.assertEqual(self.client.submit(YAML, id="x").id, "x")
        self.assertEqual({request.job_id for request in self.service.requests["Submit"]}, {"x"})
        self.assertEqual(self.calls("Submit"), 3)

    def test_submit_without_an_id_is_not_repeated(self):
        self.service.answer("Submit", UNAVAILABLE)
        with self.assertRaises(freshet.ConnectionLost):
            self.client.submit(YAML)
        self.assertEqual(self.calls("Submit"), 1)

    def test_the_token_of_this_users_own_cluster_is_found(self):
        self.service.answer("Get", job("a"))
        with tempfile.TemporaryDirectory() as state:
            folder = pathlib.Path(state) / "freshet/clusters/mine"
            folder.mkdir(parents=True)
            (folder / "cluster.json").write_text(f'{{"controller": "{self.service.address}"}}')
            (folder / "cluster.token").write_text("s3cret\n")
            held = open(folder / "lock", "w")
            environment = {"XDG_STATE_HOME": state, "FRESHET_TOKEN": "for-another-place"}
            with mock.patch.dict(os.environ, environment):
                with self.assertRaisesRegex(ValueError, "TLS"):
                    freshet.Client(self.service.address)  # that cluster is not running
                with held:
                    fcntl.flock(held, fcntl.LOCK_EX)
                    port = self.service.address.rpartition(":")[2]
                    with self.assertRaisesRegex(ValueError, "TLS"):
                        freshet.Client(f"{self.service.address},localhost:{port}")
                    with freshet.Client(self.service.address) as client:
                        client.get("a")
                    self.assertEqual(self.service.metadata["authorization"], "Bearer s3cret")
                    with freshet.Client(self.service.address, token="another") as client:
                        client.get("a")
                    self.assertEqual(self.service.metadata["authorization"], "Bearer another")
        self.client.get("a")
        self.assertNotIn("authorization", self.service.metadata)

    def test_paths_of_a_job_become_absolute_for_a_server_of_this_machine(self):
        self.service.answer("Submit", job())
        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            self.addCleanup(os.chdir, before)
            pathlib.Path("my-model").mkdir()
            pathlib.Path("job.yaml").write_text(YAML, encoding="utf-8")
            self.client.submit("job.yaml")
            os.chdir(before)
            request = self.service.requests["Submit"][0]
            self.assertEqual(request.file_name, "job.yaml")
            path = os.path.realpath(os.path.join(folder, "my-model"))
            self.assertEqual([os.path.realpath(o.split("=", 1)[1]) for o in request.overrides], [path])

    def test_faults_of_a_job_come_one_by_one(self):
        details = error_details(
            "INVALID_JOB",
            violations=[("trainer.steps", "job.yaml:3: trainer.steps: 0 is too small"), ("x", "bad")],
        )
        self.service.answer("Submit", Fault(grpc.StatusCode.INVALID_ARGUMENT, "2 faults", details))
        with self.assertRaises(freshet.InvalidJob) as caught:
            self.client.submit(YAML, id="x")
        self.assertEqual(
            caught.exception.faults, ["job.yaml:3: trainer.steps: 0 is too small", "x: bad"]
        )
        self.assertEqual(caught.exception.reason, "INVALID_JOB")
        self.assertEqual(self.calls("Submit"), 1)

    # Calls.

    def test_an_idempotent_call_is_repeated_while_the_server_is_away(self):
        self.service.answer("Get", UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, job("a"))
        self.assertEqual(self.client.get("a").id, "a")
        pauses = [call.args[0] for call in self.pauses.call_args_list]
        self.assertEqual(pauses, [0.1, 0.2, 0.4])

    def test_a_call_is_given_up_after_four_tries(self):
        self.service.answer("Get", UNAVAILABLE)
        with self.assertRaisesRegex(freshet.ConnectionLost, "freshet cluster up"):
            self.client.get("a")
        self.assertEqual(self.calls("Get"), 4)

    def test_statuses_are_exceptions(self):
        for code, kind in (
            (grpc.StatusCode.NOT_FOUND, freshet.NotFound),
            (grpc.StatusCode.FAILED_PRECONDITION, freshet.Refused),
            (grpc.StatusCode.PERMISSION_DENIED, freshet.Refused),
            (grpc.StatusCode.DEADLINE_EXCEEDED, freshet.TimedOut),
            (grpc.StatusCode.INTERNAL, freshet.FreshetError),
        ):
            service = RecordedService()
            service.answer("Get", Fault(code, "it is so"))
            with freshet.Client(service.address) as client, self.assertRaises(kind):
                client.get("a")
            service.stop()

    def test_details_say_why_and_when_to_try_again(self):
        details = error_details("FULL", retry_seconds=5)
        self.service.answer("Resume", Fault(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", details))
        with self.assertRaises(freshet.Refused) as caught:
            self.client.resume("a")
        self.assertEqual((caught.exception.reason, caught.exception.retry_after), ("FULL", 5.0))

    def test_details_that_cannot_be_read_leave_code_and_message(self):
        fault = Fault(grpc.StatusCode.NOT_FOUND, "no job a", b"\x1a\xff\xff\xff")
        self.service.answer("Get", fault)
        with self.assertRaisesRegex(freshet.NotFound, "no job a"):
            self.client.get("a")

    def test_list_follows_the_pages(self):
        self.service.answer(
            "List",
            pb.ListReply(jobs=[job("a")], next_page_token="2"),
            pb.ListReply(jobs=[job("b")]),
        )
        jobs = self.client.list(states=("running",), name_prefix="x")
        self.assertEqual([each.id for each in jobs], ["a", "b"])
        first = self.service.requests["List"][0]
        self.assertEqual((list(first.states), first.name_prefix), ([pb.JOB_STATE_RUNNING], "x"))
        self.assertEqual(self.service.requests["List"][1].page_token, "2")

    def test_scale_names_role_and_pool(self):
        self.service.answer("Scale", pb.ScaleReply(before=2, wanted=4))
        self.assertEqual(self.client.scale("rollout/small", 4), 2)
        request = self.service.requests["Scale"][0]
        self.assertEqual((request.role, request.pool, request.replicas), ("rollout", "small", 4))

    def test_delete_waits_for_workers_that_still_stop(self):
        busy = Fault(
            grpc.StatusCode.UNAVAILABLE, "rollout r0 is still stopping", error_details("TRY_AGAIN")
        )
        self.service.answer("Get", job("a"))
        self.service.answer("Delete", *[busy] * 6, pb.DeleteReply())
        self.client.delete("a", keep_checkpoints=True)
        self.assertEqual(self.calls("Delete"), 7)
        self.assertTrue(self.service.requests["Delete"][0].keep_checkpoints)

    def test_delete_says_who_still_stops_when_it_gives_up(self):
        busy = Fault(
            grpc.StatusCode.UNAVAILABLE, "rollout r0 is still stopping", error_details("TRY_AGAIN")
        )
        self.service.answer("Get", job("a"))
        self.service.answer("Delete", busy)
        with mock.patch("freshet.client._DELETE_SECONDS", 0.0):
            with self.assertRaisesRegex(freshet.ConnectionLost, "^rollout r0 is still stopping"):
                self.client.delete("a")

    def test_delete_refuses_a_job_that_was_not_there_but_not_one_that_goes_meanwhile(self):
        unknown = Fault(grpc.StatusCode.NOT_FOUND, "there is no job a", error_details("NOT_FOUND"))
        busy = Fault(grpc.StatusCode.UNAVAILABLE, "r0 is still stopping", error_details("TRY_AGAIN"))
        self.service.answer("Get", job("a"), job("a"), unknown)
        self.service.answer("Delete", busy, unknown, *[busy] * 5, unknown)
        self.client.delete("a")
        self.client.delete("a")
        with self.assertRaisesRegex(freshet.NotFound, "there is no job a"):
            self.client.delete("a")

    def test_delete_whose_reply_is_lost_has_deleted_only_a_job_that_was_there(self):
        unknown = Fault(grpc.StatusCode.NOT_FOUND, "there is no job a", error_details("NOT_FOUND"))
        self.service.answer("Get", job("a"), unknown)
        self.service.answer("Delete", UNAVAILABLE, unknown, UNAVAILABLE, unknown)
        self.client.delete("a")
        self.assertEqual(self.calls("Delete"), 2)
        with self.assertRaises(freshet.NotFound):
            self.client.delete("a")
        self.assertEqual(self.calls("Delete"), 4)

    def test_a_token_needs_tls(self):
        with self.assertRaisesRegex(ValueError, "TLS"):
            freshet.Client("host:1", token="secret")
        with self.assertRaisesRegex(ValueError, "ca"):
            freshet.Client("127.0.0.1:1", cert="c", key="k")
        with mock.patch.dict(os.environ, {"FRESHET_TOKEN": "secret"}):
            with self.assertRaisesRegex(ValueError, "TLS") as fault:
                freshet.Client("127.0.0.1:1")
        self.assertNotIn("secret", str(fault.exception))

    def test_a_token_comes_from_the_argument_a_file_or_the_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "token"
            file.write_text("from-file\nsecond line\n")
            with mock.patch.dict(os.environ, {"FRESHET_TOKEN": "from-env"}):
                self.assertEqual(read_token("given", None), "given")
                self.assertEqual(read_token(None, file), "from-file")
                self.assertEqual(read_token(None, None), "from-env")
                self.assertIsNone(read_token("", None))
            with mock.patch.dict(os.environ, {"FRESHET_TOKEN": ""}):
                self.assertIsNone(read_token(None, None))
            with self.assertRaisesRegex(ValueError, "one of them"):
                read_token("given", file)
            for bad in ("\n", "with blank\n", "\u00e9\n", "x" * 20000):
                file.write_text(bad, encoding="utf-8")
                with self.assertRaisesRegex(ValueError, "token"):
                    read_token(None, file)
            with self.assertRaises(FileNotFoundError):
                read_token(None, file.with_name("absent"))

    # Events.

    def test_watch_goes_on_after_the_last_event_of_a_broken_stream(self):
        self.service.answer(
            "Watch",
            [state("c0", pb.JOB_STATE_RUNNING), step(1), UNAVAILABLE],
            [UNAVAILABLE],
            [step(2), state("c3", pb.JOB_STATE_SUCCEEDED, "done")],
        )
        self.service.answer("Get", job(state=pb.JOB_STATE_SUCCEEDED))
        events = list(self.client.watch("a"))
        self.assertEqual([event.cursor for event in events], ["c0", "c1", "c2", "c3"])
        cursors = [request.cursor for request in self.service.requests["Watch"]]
        self.assertEqual(cursors, ["", "c1", "c1"])
        self.assertEqual([event.kind for event in events], ["state", "step", "step", "state"])

    def test_a_stream_that_ends_before_the_job_is_opened_again(self):
        self.service.answer("Watch", [step(1)], [step(2)])
        self.service.answer("Get", job(), job(state=pb.JOB_STATE_FAILED))
        self.assertEqual([event.cursor for event in self.client.watch("a", "c0")], ["c1", "c2"])
        cursors = [request.cursor for request in self.service.requests["Watch"]]
        self.assertEqual(cursors, ["c0", "c1"])

    def test_watch_gives_up_when_the_server_stays_away(self):
        self.service.answer("Watch", [UNAVAILABLE])
        client = freshet.Client(self.service.address, patience=0.0)
        self.addCleanup(client.close)
        with self.assertRaises(freshet.ConnectionLost):
            list(client.watch("a"))

    def test_watch_gives_up_when_the_server_does_not_say_whether_the_job_has_ended(self):
        self.service.answer("Watch", [])
        self.service.answer("Get", Fault(grpc.StatusCode.DEADLINE_EXCEEDED, "it hangs"))
        client = freshet.Client(self.service.address, patience=0.0)
        self.addCleanup(client.close)
        with self.assertRaises(freshet.TimedOut):
            list(client.watch("a"))
        self.assertEqual(self.calls("Watch"), 1)

    def test_watch_goes_on_when_the_server_was_slow_once(self):
        slow = Fault(grpc.StatusCode.DEADLINE_EXCEEDED, "it hangs")
        self.service.answer("Watch", [slow], [step(1)], [state("c2", pb.JOB_STATE_SUCCEEDED)])
        self.service.answer("Get", slow, job(state=pb.JOB_STATE_SUCCEEDED))
        self.assertEqual([event.cursor for event in self.client.watch("a")], ["c1", "c2"])
        self.assertEqual(self.pauses.call_count, 2)

    def test_watch_does_not_try_again_what_is_refused(self):
        self.service.answer("Watch", [Fault(grpc.StatusCode.NOT_FOUND, "no job a")])
        with self.assertRaises(freshet.NotFound):
            list(self.client.watch("a"))
        self.assertEqual(self.calls("Watch"), 1)

    def test_watch_ends_after_its_time(self):
        self.service.answer("Watch", [step(1)])
        self.service.answer("Get", job())
        with self.assertRaisesRegex(freshet.TimedOut, "goes on"):
            list(self.client.watch("a", timeout=0.0))

    def test_wait_tells_steps_and_how_the_job_ended(self):
        self.service.answer("Submit", job())
        self.service.answer("Watch", [step(1), step(2), state("c3", pb.JOB_STATE_FAILED, "all died")])
        self.service.answer("Get", job(state=pb.JOB_STATE_FAILED, reason="all died"))
        steps = []
        with self.assertRaisesRegex(freshet.JobFailed, "all died") as caught:
            self.client.submit(YAML).wait(on_step=steps.append)
        self.assertEqual([event.data["step"] for event in steps], [1, 2])
        self.assertEqual(caught.exception.job.state, "FAILED")
        self.assertIn("step 1 reward 0.100", str(steps[0]))
        self.assertNotEqual(steps[0].data["kl"], steps[0].data["kl"])  # null is NaN

    def test_metrics_are_read_up_to_now(self):
        newest = step(2)
        self.service.answer("Get", pb.Job(id="a", state=pb.JOB_STATE_RUNNING, recent_events=[newest]))
        self.service.answer("Watch", [state("c0", pb.JOB_STATE_RUNNING), step(1), newest, step(3)])
        self.assertEqual([row["step"] for row in self.client.metrics("a")], [1, 2])

    def test_samples_are_rows(self):
        self.service.answer("ListSamples", pb.ListSamplesReply(samples_json=['{"reward": 1.5}']))
        self.assertEqual(self.client.samples("a", limit=3), [{"reward": 1.5}])
        self.assertEqual(self.service.requests["ListSamples"][0].limit, 3)


if __name__ == "__main__":
    unittest.main()
