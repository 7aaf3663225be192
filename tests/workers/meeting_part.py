"""Ranks that cannot meet: nobody comes, the port is in use, or the folder belongs to another user."""
import contextlib
import os
import socket
import time
import unittest

from processes import Launch, WorkersTest, free_port, last_step, slurm_variables, torchrun_variables, wait_for

TIMEOUT = 3  # --dist-timeout, in seconds


def addresses_of(process):
    """The addresses of this machine at which a process listens or is connected."""
    sockets = set()
    for name in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(f"/proc/{process}/fd/{name}"))
    addresses = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{process}/net/{table}", encoding="ascii") as file:
            for fields in map(str.split, file.readlines()[1:]):
                if f"socket:[{fields[9]}]" in sockets:
                    words = bytes.fromhex(fields[1].split(":")[0])
                    host_order = b"".join(words[i:i + 4][::-1] for i in range(0, len(words), 4))
                    addresses.add(socket.inet_ntop(family, host_order))
    return addresses


class MeetingTest(WorkersTest):
    def lonely(self, rank, size, *arguments, variables=None):
        self.launches += 1
        address = [] if variables else ["--rendezvous", f"tcp://127.0.0.1:{free_port()}"]
        command = self.command("run", "--dist-timeout", str(TIMEOUT), *address, *arguments)
        return Launch([self.start(f"rank-{rank}", command, variables or torchrun_variables(rank, size))])

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
            launch = self.launch(2, "run", "--dist-timeout", str(TIMEOUT), "--rendezvous", f"tcp://127.0.0.1:{port}")
            with launch:
                self.assertLess(launch.wait(20), TIMEOUT + 4.0)
        # The others only see that rank 0 does not answer.
        self.assertEqual(launch.codes(), [73, 75], str(launch))
        self.assertEqual(len(launch[0].sentences()), 1, str(launch))
        self.assertRegex(launch[0].sentences()[0], rf"cannot listen at tcp://127\.0\.0\.1:{port}")
        self.assertEqual(self.snapshot("run"), {})

    def test_wrong_flags_of_the_rendezvous(self):
        for flags in (["--dist-timeout", "1"], ["--rendezvous", "http://127.0.0.1:80"]):
            launch = self.launch(2, "run", *flags)
            self.finish(launch, 2)
            self.assertEqual(len(launch[0].sentences()), 1, str(launch))
            self.assertEqual(launch[1].err, "", str(launch))

    def test_private_folder_and_loopback(self):
        """On one machine the rendezvous is a folder for this user, and nothing listens for others."""
        with self.launch(2, "run", "--steps", "100000", "--log-every", "1") as launch:
            wait_for("step 2", lambda: last_step(self.path("run")) >= 2, launch)
            places = self.meeting_places()
            self.assertEqual(len(places), 1)
            self.assertEqual(os.stat(self.path(f"run/{places[0]}")).st_mode & 0o777, 0o700)
            for rank in launch.ranks:
                self.assertEqual(addresses_of(rank.process.pid), {"127.0.0.1"})

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a folder to another user")
    def test_folder_of_another_user(self):
        folder = self.path("place/.rendezvous-")
        os.makedirs(folder, 0o700)
        os.chown(folder, 65534, 65534)
        launch = self.launch(2, "run", "--rendezvous", self.path("place"), variables_of=lambda rank: {
            "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2})
        self.finish(launch, 73)
        self.assertEqual(len(launch[0].sentences()), 1)
        self.assertEqual(launch[1].err, "")
        self.assertRegex(launch[0].err, r"'.*/place/\.rendezvous-' belongs to another user")
        self.assertEqual(os.listdir(folder), [])
        self.assertFalse(os.path.exists(self.path("run/config.toml")))
