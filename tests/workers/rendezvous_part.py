"""A rank that is killed during the rendezvous, and what a killed launch leaves of it."""
import os
import socket
import time

from killed_run import SETTINGS, TIMEOUT, KilledRunTest
from processes import free_port, last_step, torchrun_variables, wait_for


class RendezvousTest(KilledRunTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def check_rendezvous(self, size):
        """Kills a rank before, while and after the ranks meet."""
        rank = self.random.randrange(size)
        with self.start_run(size) as launch:
            # Before a process has loaded LibTorch nobody knows of it, so the others wait for it.
            self.kill(launch, rank, limit=TIMEOUT + 4.0)
        for pause in (0.0, self.random.uniform(0.0, 0.1), self.random.uniform(0.1, 0.4)):
            rank = self.random.randrange(size)
            with self.start_run(size) as launch:
                wait_for("a mark of the rank", lambda: self.has_mark(rank), launch, pause=0.002)
                time.sleep(pause)
                self.kill(launch, rank)
        self.finish_run(size)

    def has_mark(self, rank):
        return any(os.path.exists(self.path(f"run/{place}/rank-{rank}")) for place in self.meeting_places())

    def test_rendezvous_of_2(self):
        self.check_rendezvous(2)

    def test_rendezvous_of_4(self):
        self.check_rendezvous(4)

    def test_rendezvous_folder_of_a_killed_launch(self):
        """The same command again, also with a folder that a killed rank 0 could not delete."""
        settings = [*SETTINGS, "--resume", "--rendezvous", self.path("place")]
        variables = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
        with self.launch(2, "run", *settings, variables_of=lambda rank: {**variables, "RANK": rank}) as launch:
            wait_for("step 5", lambda: last_step(self.path("run")) >= 5, launch)
            self.kill(launch, 0)
        self.train(2, "run", *settings, variables_of=lambda rank: {**variables, "RANK": rank})
        self.check_same_bytes(self.whole(2, *SETTINGS), "run")

    def test_folder_of_a_killed_launch_is_removed(self):
        with self.start_run(2) as launch:
            wait_for("step 2", lambda: last_step(self.path("run")) >= 2, launch)
            self.assertEqual(len(self.meeting_places()), 1)
            self.kill(launch, 0)
        self.finish_run(2)
        self.assertEqual(self.meeting_places(), [])

    def test_rank_0_is_killed_at_its_address(self):
        """The other rank waits for a third one, by way of rank 0."""
        with self.launch(2, "run", *SETTINGS, "--rendezvous", f"tcp://127.0.0.1:{self.port}",
                         variables_of=lambda rank: torchrun_variables(rank, 3)) as launch:
            wait_for("rank 0 listening", self.is_answered, launch)
            time.sleep(2.0)  # until rank 1 has found it
            self.kill(launch, 0)
            self.assertEqual(len(launch[1].sentences()), 1, str(launch))

    def is_answered(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
