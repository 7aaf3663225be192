"""Ranks that cannot meet: nobody comes, the port is in use, or the folder belongs to another user."""
import os
import socket
import time
import unittest

from processes import Launch, WorkersTest, free_port, slurm_variables, torchrun_variables

TIMEOUT = 3  # --dist-timeout, in seconds


class MeetingTest(WorkersTest):
    def lonely(self, rank, size, *arguments, variables=None):
        self.launches += 1
        return Launch([self.start(f"rank-{rank}", self.command("run", "--dist-timeout", str(TIMEOUT), *arguments),
                                  variables or torchrun_variables(rank, size, free_port()))])

    def check_lonely(self, launch, pattern):
        begin = time.monotonic()
        self.finish(launch, 75)
        # Loading LibTorch takes a second of a CPU, which others may use as well.
        self.assertLess(time.monotonic() - begin, TIMEOUT + 4.0)
        self.assertEqual(len(launch[0].sentences()), 1, str(launch))
        self.assertRegex(launch[0].sentences()[0], pattern)
        self.assertLess(len(launch[0].err), 2000)
        self.assertEqual(self.meeting_places(), [])
        self.assertEqual(self.snapshot("run"), {})

    def test_nobody_joins_rank_0(self):
        self.check_lonely(self.lonely(0, 4), r"ranks 1, 2, 3 of 4 did not come to tcp://127\.0\.0\.1:\d+ within 3 s")

    def test_rank_0_is_missing(self):
        self.check_lonely(self.lonely(1, 2), r"rank 1 cannot reach rank 0 at tcp://127\.0\.0\.1:\d+ within 3 s")

    def test_nobody_comes_to_the_folder(self):
        launch = self.lonely(0, 2, variables=slurm_variables(0, 2))
        self.check_lonely(launch, r"rank 1 of 2 did not come to .*/run/\.rendezvous-\w+ within 3 s")

    def test_rank_0_does_not_come_to_the_folder(self):
        launch = self.lonely(1, 2, variables=slurm_variables(1, 2))
        self.check_lonely(launch, r"rank 0 of 2 did not come to .*/run/\.rendezvous-\w+ within 3 s")

    def test_port_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            launch = self.launch(2, "run", "--dist-timeout", str(TIMEOUT), port=port)
            with launch:
                self.assertLess(launch.wait(20), TIMEOUT + 4.0)
        # The others only see that rank 0 does not answer.
        self.assertEqual(launch.codes(), [73, 75], str(launch))
        self.assertEqual(len(launch[0].sentences()), 1, str(launch))
        self.assertRegex(launch[0].sentences()[0], rf"cannot listen at tcp://127\.0\.0\.1:{port}")
        self.assertEqual(self.snapshot("run"), {})

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a folder to another user")
    def test_folder_of_another_user(self):
        folder = self.path("place/.rendezvous-")
        os.makedirs(folder, 0o700)
        os.chown(folder, 65534, 65534)
        launch = self.launch(2, "run", "--rendezvous", self.path("place"), variables_of=lambda rank: {
            "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2})
        self.finish(launch, 73)
        self.assertEqual(len(launch[0].sentences()), 1)
        self.assertRegex(launch[0].err, r"'.*/place/\.rendezvous-' belongs to another user")
        self.assertEqual(os.listdir(folder), [])
        self.assertFalse(os.path.exists(self.path("run/config.toml")))
