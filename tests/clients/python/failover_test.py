"""A client with several controllers."""

import unittest
from unittest import mock

import freshet
import grpc
from freshet.job.v1 import job_service_pb2 as pb
from recorded_service import Fault, RecordedService, error_details, job, state, step

# Nothing listens here.
NOBODY = "127.0.0.1:1"
YAML = "name: a\nmodel:\n  path: my-model\n"


def refusal(reason, leader=""):
    return Fault(grpc.StatusCode.UNAVAILABLE, "not now", error_details(reason, leader=leader))


class FailoverTest(unittest.TestCase):
    def setUp(self):
        self.one, self.two = RecordedService(), RecordedService()
        self.addCleanup(self.one.stop)
        self.addCleanup(self.two.stop)
        mock.patch("freshet.connection.time.sleep").start()
        self.addCleanup(mock.patch.stopall)

    def client(self, *addresses):
        client = freshet.Client(",".join(addresses), timeout=10.0, patience=10.0)
        self.addCleanup(client.close)
        return client

    def test_calls_go_to_a_controller_that_answers(self):
        client = self.client(NOBODY, self.two.address)
        self.two.answer("Get", job("a", state=pb.JOB_STATE_SUCCEEDED))
        self.two.answer("Submit", job("b"))
        self.two.answer("Watch", [step(1), state("c2", pb.JOB_STATE_SUCCEEDED)])
        self.assertEqual(client.submit(YAML).id, "b")
        self.assertEqual(client.get("a").id, "a")
        self.assertEqual(len(list(client.watch("a"))), 2)
        self.assertEqual(len(self.two.requests["Submit"]), 1)

    def test_a_controller_that_dies_is_left(self):
        client = self.client(self.one.address, self.two.address)
        self.one.answer("Get", job("one"))
        self.two.answer("Get", job("two"))
        self.assertEqual(client.get("a").id, "one")
        self.one.stop()
        self.assertEqual(client.get("a").id, "two")

    def test_a_watch_goes_on_at_the_other_controller(self):
        client = self.client(self.one.address, self.two.address)
        self.one.answer("Watch", [step(1), Fault(grpc.StatusCode.UNAVAILABLE, "goes down")])
        self.two.answer("Watch", [step(2), state("c3", pb.JOB_STATE_SUCCEEDED)])
        self.two.answer("Get", job(state=pb.JOB_STATE_SUCCEEDED))
        self.assertEqual([event.cursor for event in client.watch("a")], ["c1", "c2", "c3"])
        self.assertEqual(self.two.requests["Watch"][0].cursor, "c1")

    def test_who_leads_is_followed(self):
        client = self.client(self.one.address, self.two.address)
        self.one.answer("Pause", refusal("NOT_LEADER", leader=self.two.address))
        self.two.answer("Pause", job("a"))
        self.assertEqual(client.pause("a").id, "a")
        self.assertEqual(len(self.one.requests["Pause"]), 1)

    def test_a_call_waits_for_the_next_leader(self):
        client = self.client(self.one.address)
        self.one.answer("Submit", *[refusal("NOT_LEADER")] * 9, job("a"))
        self.assertEqual(client.submit(YAML).id, "a")
        self.one.answer("Pause", *[refusal("LEADER_AWAY")] * 9, job("a"))
        self.assertEqual(client.pause("a").id, "a")

    def test_a_submit_without_an_id_is_not_made_twice(self):
        client = self.client(self.one.address, self.two.address)
        self.one.answer("Submit", refusal("LEADER_AWAY"))
        with self.assertRaises(freshet.ConnectionLost) as caught:
            client.submit(YAML)
        self.assertEqual(caught.exception.reason, "LEADER_AWAY")
        self.assertEqual(len(self.one.requests["Submit"]) + len(self.two.requests["Submit"]), 1)

    def test_it_says_when_nobody_is_there(self):
        client = freshet.Client(f"{NOBODY},127.0.0.1:2")
        self.addCleanup(client.close)
        with mock.patch("freshet.connection._FAILOVER_SECONDS", 0.0):
            with self.assertRaisesRegex(freshet.ConnectionLost, "freshet cluster up"):
                client.get("a")


if __name__ == "__main__":
    unittest.main()
