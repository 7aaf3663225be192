"""Bad input: one sentence on rank 0, all ranks end with the documented code, and nothing is overwritten."""
import os
import socket
import struct
import time
import unittest
import zlib

from processes import Launch, WorkersTest, free_port, slurm_variables, torchrun_variables

TIMEOUT = 3  # --dist-timeout, in seconds


def png(colour):
    """An image of 12 x 12 pixels of one colour."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = (b"\0" + bytes([colour]) * 36) * 12
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 12, 12, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class RefusalTest(WorkersTest):
    def setUp(self):
        super().setUp()
        self.stored = None  # the files of the run in the folder

    def check_refused(self, launch, code, pattern):
        """Rank 0 reports one sentence, the others are silent, and the run in the folder stays as it was."""
        self.finish(launch, code)
        self.assertEqual(len(launch[0].sentences()), 1, str(launch))
        self.assertRegex(launch[0].sentences()[0], pattern)
        self.assertEqual(launch[0].out, "")
        for rank in launch.ranks[1:]:
            self.assertEqual(rank.out + rank.err, "", str(launch))
        self.assertEqual(self.meeting_places(), [])
        if self.stored is not None:
            self.assertEqual(self.snapshot("run"), self.stored)

    def refuse(self, size, pattern, *arguments, extra=None):
        """A launch in the folder of a finished run, which is refused with code 2 by rank 0 alone."""
        if self.stored is None:
            self.train(1, "run", "--steps", "2")
            self.stored = self.snapshot("run")
        launch = self.launch(size, "run", *arguments, extra=extra,
                             variables_of=lambda rank: slurm_variables(rank, size))
        self.check_refused(launch, 2, pattern)

    def test_processes_do_not_divide_the_workers(self):
        self.refuse(3, "--workers must be a multiple of the 3 processes, got 4", "--resume")

    def test_folder_of_another_run(self):
        self.refuse(2, "holds a run already", "--steps", "4")

    def test_other_settings(self):
        self.refuse(2, r"rank 1 on '.+': --lr is '0\.002', but '0\.001' on rank 0", "--resume",
                    extra={0: ["--lr", "0.001"], 1: ["--lr", "0.002"]})

    def test_resume_on_one_rank(self):
        self.refuse(2, r"rank 1 on '.+': --resume is not as on rank 0", "--steps", "2", extra={1: ["--resume"]})

    def test_unknown_model(self):
        self.refuse(2, "nosuch", "--resume", "--model", "nosuch")

    def test_unknown_optimizer_on_one_rank(self):
        self.refuse(2, r"rank 1 on '.+': .*nosuch", "--resume", extra={1: ["--optimizer", "nosuch"]})

    def test_native_norm(self):
        launch = self.launch(2, "new", "--norm", "native", variables_of=lambda rank: slurm_variables(rank, 2))
        self.check_refused(launch, 2, "--norm native cannot be trained by several processes")
        self.assertFalse(os.path.exists(self.path("new/metrics.jsonl")))

    def test_other_data(self):
        """The same relative path in two folders with different images."""
        self.launches += 1
        ranks = []
        for rank in range(2):
            for split in ("train", "val"):
                for label in ("a", "b"):
                    folder = self.path(f"machine-{rank}/images/{split}/{label}")
                    os.makedirs(folder)
                    for image in range(8 + rank):
                        with open(f"{folder}/{image}.png", "wb") as file:
                            file.write(png(10 * image + (100 if label == "b" else 0)))
            command = self.command("new", "--data", "folder:images", "--image-size", "12", "--steps", "2")
            ranks.append(self.start(f"rank-{rank}", command, slurm_variables(rank, 2), self.path(f"machine-{rank}")))
        launch = Launch(ranks)
        self.check_refused(launch, 2, r"rank 1 on '.+': the data 'folder:images' is not what it is on rank 0")
        self.assertFalse(os.path.exists(self.path("new/metrics.jsonl")))


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


class VariablesTest(WorkersTest):
    def check(self, variables, pattern, *arguments):
        """One process ends at once with code 2."""
        launch = self.launch(1, "run", *arguments, variables_of=lambda _: variables)
        self.finish(launch, 2)
        self.assertEqual(len(launch[0].err.splitlines()), 1, str(launch))
        self.assertRegex(launch[0].err, "^renorm: .*" + pattern)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_incomplete(self):
        self.check({"WORLD_SIZE": 2}, "the environment variable RANK is missing")
        self.check({**torchrun_variables(0, 2), "MASTER_ADDR": "127.0.0.1"}, "MASTER_PORT is missing")
        self.check({"OMPI_COMM_WORLD_SIZE": 2}, "OMPI_COMM_WORLD_RANK is missing")

    def test_rank_without_world_size(self):
        self.check({"RANK": 1}, "the environment variable WORLD_SIZE is missing", "--steps", "2")

    def test_wrong(self):
        self.check({"RANK": 2, "WORLD_SIZE": 2}, "the environment variable RANK")
        self.check({"RANK": 0, "WORLD_SIZE": "two"}, "the environment variable WORLD_SIZE")
        self.check({**slurm_variables(0, 2), "SLURM_STEP_TASKS_PER_NODE": "2(x"}, "SLURM_STEP_TASKS_PER_NODE")

    def test_rendezvous(self):
        variables = torchrun_variables(0, 2)
        self.check(variables, "must be tcp://HOST:PORT or a folder", "--rendezvous", "http://127.0.0.1:80")
        self.check(variables, "must be HOST:PORT", "--rendezvous", "tcp://127.0.0.1")
        self.check(variables, "the port of --rendezvous", "--rendezvous", "tcp://127.0.0.1:70000")
        self.check({"RANK": 0, "WORLD_SIZE": 2}, "need --rendezvous")
