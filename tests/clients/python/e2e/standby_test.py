"""The client and the command while a standby controller takes over from a killed leader."""

import signal

import freshet
from cluster_case import REPOSITORY, SECONDS, ClusterCase

SMOKE = REPOSITORY / "examples" / "smoke.yaml"


class StandbyTest(ClusterCase):
    FLAGS = ("--standby",)

    def kill_the_leader(self):
        """Kills the leader with SIGKILL. The supervisor restarts it; either controller may lead next."""
        self.cluster.signal(signal.SIGKILL, grpc=self.client.cluster().leader)

    def test_everything_goes_on_through_the_standby(self):
        self.assertEqual(len(self.server.split(",")), 2)
        job = self.client.submit(SMOKE, id="a", set={"trainer.steps": 60, "checkpoint.every_steps": 5})
        steps = []
        for event in job.watch(timeout=SECONDS):
            if event.kind != "step":
                continue
            steps.append(event.data["step"])
            if len(steps) == 8:
                self.kill_the_leader()
                self.assertIn("a", self.run_freshet("get", "a"))
                # Needs a leader, so the call waits for the next one.
                self.assertEqual(self.client.scale("rollout", 1), 1)
                self.run_freshet("scale", "rollout", "1")
        self.assertEqual(steps, list(range(1, 61)))
        self.assertEqual(job.refresh().state, "SUCCEEDED")
        self.assertIn("every promise holds", self.run_freshet("ledger", "verify", "a"))
        # Both controllers answer, whichever leads.
        for number, address in enumerate(self.server.split(",")):
            with freshet.Client(address) as client:
                self.assertTrue(list(client.logs(role="controller")))
                folder = client.export_checkpoint("a", self.folder / f"model-{number}")
                self.assertTrue((folder / "model.safetensors").exists())
            logs = self.run_freshet("logs", "--role", "controller", "--server", address)
            self.assertIn("leads=yes", logs)
