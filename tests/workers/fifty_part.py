"""Fifty processes on one machine."""
import os
import time

from processes import SMOOTH, WorkersTest, last_step, slurm_variables

SIZE = 50
STEPS = 100
# Every record costs two more sums over all processes.
SETTINGS = [*SMOOTH, "--workers", str(SIZE), "--minibatch", "2", "--steps", str(STEPS), "--log-every", "5",
            "--eval-every", "50"]


class FiftyTest(WorkersTest):
    def test_same_result_and_no_leak(self):
        one = self.whole(1, *SETTINGS)
        counts = {}  # open files of each rank, by the step at which they were counted
        with self.launch(SIZE, "run", *SETTINGS, "--dist-timeout", "60",
                         variables_of=lambda rank: slurm_variables(rank, SIZE)) as launch:
            while launch[0].process.poll() is None:
                step = last_step(self.path("run"))
                # Between an evaluation, which opens files, and the next.
                if 5 <= step % 50 <= 40:
                    counts.setdefault(step, [self.open_files(rank) for rank in launch.ranks])
                time.sleep(0.05)
            self.finish(launch)
        self.check_same(one, "run")
        early = [count for step, count in counts.items() if step <= 40]
        late = [count for step, count in counts.items() if step >= 55]
        self.assertTrue(early and late, "the steps were too fast to count open files")
        for rank in range(SIZE):
            self.assertEqual(min(count[rank] for count in early), min(count[rank] for count in late), f"rank {rank}")
        for rank in launch.ranks[1:]:
            self.assertEqual(rank.out + rank.err, "")

    @staticmethod
    def open_files(rank):
        return len(os.listdir(f"/proc/{rank.process.pid}/fd"))
