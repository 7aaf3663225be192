"""Runs of 1, 2 and 4 processes end with the same losses and weights."""
from processes import CURVE, WorkersTest, free_port, needs_mpirun, records, slurm_variables, torchrun_variables


class SameTest(WorkersTest):
    def test_torchrun_variables(self):
        one = self.whole(1, *CURVE)
        for size in (2, 4):
            launch = self.train(size, f"of-{size}", *CURVE)
            self.check_same(one, f"of-{size}")
            self.check_evaluations(f"of-{size}")
            self.check_silence(launch)

    def check_evaluations(self, out):
        """Every image counts once, whoever evaluates it."""
        evaluations = records(self.path(out), "evaluation")
        self.assertEqual([(record["step"], record["images"]) for record in evaluations], [(50, 400), (100, 400)])

    def check_silence(self, launch):
        """Rank 0 alone prints."""
        self.assertIn(f"processes  {len(launch.ranks)}, started by RANK and WORLD_SIZE", launch[0].err)
        self.assertEqual(launch[0].out.count("test accuracy"), 1, launch[0].out)
        for rank in launch.ranks[1:]:
            self.assertEqual(rank.out, "")
            self.assertEqual(rank.err[:500], "")

    def test_address_alone(self):
        """Without LOCAL_WORLD_SIZE the processes may be on several machines."""
        port = free_port()
        self.train(2, "of-2", "--steps", "3", variables_of=lambda rank: {
            "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})

    def test_torchrun_without_its_store(self):
        """A torchrun that does not listen at the address itself."""
        port = free_port()
        launch = self.train(2, "of-2", "--steps", "3", variables_of=lambda rank: {
            **torchrun_variables(rank, 2, port), "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": 1})
        self.assertIn("processes  2, started by torchrun", launch[0].err)

    @needs_mpirun
    def test_mpirun(self):
        one = self.whole(1, *CURVE)
        for size in (2, 4):
            launch = self.finish(self.mpirun(size, f"of-{size}", *CURVE))
            self.assertEqual(self.mpirun_codes(launch), [0] * size)
            self.assertIn(f"processes  {size}, started by mpirun", launch[0].err)
            self.assertEqual(launch[0].out.count("test accuracy"), 1, launch[0].out)
            self.check_same(one, f"of-{size}")
            self.assertEqual(self.meeting_places(), [])

    def test_slurm_variables(self):
        one = self.whole(1, *CURVE)
        launch = self.train(4, "of-4", *CURVE, variables_of=lambda rank: slurm_variables(rank, 4))
        self.assertIn("processes  4, started by srun", launch[0].err)
        self.check_same(one, "of-4")
        self.check_silent_ranks(launch)
        self.assertEqual(self.meeting_places(), [])

    def check_silent_ranks(self, launch):
        for rank in launch.ranks[1:]:
            self.assertEqual(rank.out + rank.err, "")
