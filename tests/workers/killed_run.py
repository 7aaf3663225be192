"""Runs of several processes that lose one of them and are continued with the same command."""
import random
import signal

from processes import WorkersTest, slurm_variables

STEPS = 40
TIMEOUT = 4  # --dist-timeout, in seconds
# A checkpoint per step slows the steps down, so that a kill meets the step it is meant for.
SETTINGS = ["--steps", str(STEPS), "--log-every", "1", "--eval-every", "10", "--checkpoint-every", "1",
            "--dist-timeout", str(TIMEOUT)]


class KilledRunTest(WorkersTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(1)

    def start_run(self, size):
        """A launch with a step number of Slurm's own, as a new srun has."""
        return self.launch(size, "run", *SETTINGS, "--resume",
                           variables_of=lambda rank, step=self.launches: slurm_variables(rank, size, step))

    def kill(self, launch, rank, limit=5.0):
        launch[rank].send(signal.SIGKILL)
        self.assertLess(launch.wait(), limit, str(launch))
        for index, other in enumerate(launch.ranks):
            self.assertEqual(other.process.returncode, -signal.SIGKILL if index == rank else 75, str(launch))

    def finish_run(self, size):
        self.finish(self.start_run(size))
        self.check_same_bytes(self.whole(size, *SETTINGS), "run")
