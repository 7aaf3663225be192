"""After a kill at any step, the same command with --resume ends with the bytes of an undisturbed run."""
import os

from killed_run import STEPS, KilledRunTest
from processes import last_step, wait_for


class ResumeTest(KilledRunTest):
    def check_random_steps(self, size, kills):
        for step in sorted(self.random.sample(range(2, STEPS - 10), kills)):
            with self.start_run(size) as launch:
                wait_for(f"step {step}", lambda step=step: last_step(self.path("run")) >= step, launch, pause=0.002)
                self.kill(launch, self.random.randrange(size))
        self.finish_run(size)

    def test_random_steps_of_2(self):
        self.check_random_steps(2, kills=3)

    def test_random_steps_of_4(self):
        self.check_random_steps(4, kills=2)

    def unfinished_checkpoints(self):
        try:
            return [name for name in os.listdir(self.path("run/checkpoints")) if name.startswith(".tmp-step-")]
        except FileNotFoundError:
            return []

    def check_checkpoint(self, size, rank):
        """Kills a rank while rank 0 writes a checkpoint."""
        with self.start_run(size) as launch:
            step = self.random.randrange(5, 20)
            wait_for(f"step {step}", lambda: last_step(self.path("run")) >= step, launch, pause=0.001)
            wait_for("a checkpoint that is being written", self.unfinished_checkpoints, launch, pause=0.0)
            self.kill(launch, rank)
        if rank == 0:
            self.assertTrue(self.unfinished_checkpoints())
        self.finish_run(size)
        self.assertEqual(self.unfinished_checkpoints(), [])

    def test_checkpoint_of_2(self):
        self.check_checkpoint(2, 0)

    def test_checkpoint_of_4(self):
        self.check_checkpoint(4, 0)

    def test_other_rank_during_a_checkpoint(self):
        self.check_checkpoint(2, 1)
