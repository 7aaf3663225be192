"""Bad input: one sentence on rank 0, all ranks end with the documented code, and nothing is overwritten."""
import os
import shutil
import struct
import zlib

from processes import Launch, WorkersTest, slurm_variables, torchrun_variables


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
        shutil.copytree(self.whole(1, "--steps", "2"), self.path("run"), symlinks=True)
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

    def test_more_images(self):
        self.check_other_data(lambda rank: [10 * image for image in range(8 + rank)])

    def test_other_contents(self):
        self.check_other_data(lambda rank: [10 * image + rank for image in range(8)])

    def check_other_data(self, colours_of):
        """The same relative path in two folders with different images, given by their colours."""
        self.launches += 1
        ranks = []
        for rank in range(2):
            for split in ("train", "val"):
                for label in ("a", "b"):
                    folder = self.path(f"machine-{rank}/images/{split}/{label}")
                    os.makedirs(folder)
                    for image, colour in enumerate(colours_of(rank)):
                        with open(f"{folder}/{image}.png", "wb") as file:
                            file.write(png(colour + (100 if label == "b" else 0)))
            command = self.command("new", "--data", "folder:images", "--image-size", "12", "--steps", "2")
            ranks.append(self.start(f"rank-{rank}", command, slurm_variables(rank, 2), self.path(f"machine-{rank}")))
        launch = Launch(ranks)
        self.check_refused(launch, 2, r"rank 1 on '.+': the data 'folder:images' is not what it is on rank 0")
        self.assertFalse(os.path.exists(self.path("new/metrics.jsonl")))


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
