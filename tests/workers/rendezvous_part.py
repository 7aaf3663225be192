"""A rank that is killed during the rendezvous, and what a killed launch leaves of it."""
import time

from killed_run import SETTINGS, KilledRunTest
from processes import last_step, wait_for


class RendezvousTest(KilledRunTest):
    def check_rendezvous(self, size):
        """Kills a rank before, while and after the ranks meet."""
        for pause in (0.05, 0.3, self.random.uniform(0.3, 1.0)):
            rank = self.random.randrange(size)
            with self.start_run(size) as launch:
                time.sleep(pause)
                self.kill(launch, rank)
        self.finish_run(size)

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
