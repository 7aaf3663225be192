"""Processes of `renorm train` that work together, and the files that they leave."""
import array
import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

RENORM = ""  # set by workers_test.py
# A step takes milliseconds. One thread, because a run of one process would otherwise have two.
SETTINGS = {"--data": "strokes:classes=4,train=200,test=100,size=12", "--model": "convnet:8/2,16/2", "--minibatch": "8",
            "--workers": "4", "--threads": "1"}
# A net for runs that are compared. It is smooth: another order of sums changes its gradients by rounding only. The
# gradient of a ReLU jumps where rounding puts a value on the other side of its kink.
SMOOTH = ["--model", "lstm:8"]
CURVE = [*SMOOTH, "--steps", "100", "--log-every", "1", "--eval-every", "50"]
# Sums in float differ by some 1e-7 of their size, and 100 steps of a smooth net amplify that less than tenfold.
TOLERANCE = 1e-5
PATIENCE = 60.0  # seconds until a test stops waiting for what should happen at once
LAUNCH_VARIABLES = ("OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_")
MASTER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MARK = "RENORM_WORKERS_TEST"  # an environment variable by which the processes of a test are found


def cache_folder():
    """For the data of all tests of a part. Deleted by workers_test.py."""
    return os.path.join(tempfile.gettempdir(), f"renorm-workers-{os.getpid()}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun_variables(rank, size, port=None, local_size=None):
    local_size = local_size or size
    variables = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank % local_size, "LOCAL_WORLD_SIZE": local_size}
    if port is not None:
        variables.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    return variables


def slurm_variables(rank, size, step=0):
    return {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": size, "SLURM_STEP_TASKS_PER_NODE": size, "SLURM_NODEID": 0,
            "SLURM_LOCALID": rank, "SLURM_JOB_ID": 1234, "SLURM_STEP_ID": step}


class Rank:
    """One process, with its output in files."""

    def __init__(self, work, name, command, variables, folder=None):
        self.name = name
        self.paths = [os.path.join(work, f"{name}.{stream}") for stream in ("out", "err")]
        environment = {key: value for key, value in os.environ.items()
                       if key not in MASTER_VARIABLES and not key.startswith(LAUNCH_VARIABLES)}
        environment.update({key: str(value) for key, value in variables.items()})
        with open(self.paths[0], "wb") as out, open(self.paths[1], "wb") as err:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            cwd=folder)
        self.begin = time.monotonic()

    @property
    def out(self):
        return self._read(self.paths[0])

    @property
    def err(self):
        return self._read(self.paths[1])

    @staticmethod
    def _read(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def sentences(self):
        """The errors that the process reported."""
        return [line for line in self.err.splitlines() if line.startswith("renorm: ")]

    def send(self, number):
        self.process.send_signal(number)

    def __str__(self):
        err = "".join(line for line in self.err.splitlines(True) if not line.startswith("step "))
        return f"{self.name}: code {self.process.returncode}\n{self.out}{err[:1000]}{err[1000:][-1000:]}"


def stack_of(process):
    """Where the threads of a process are, if there is a debugger."""
    if not shutil.which("gdb"):
        return ""
    result = subprocess.run(["gdb", "-p", str(process), "-batch", "-ex", "thread apply all bt 12"], check=False,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "\n".join(line[:160] for line in result.stdout.splitlines() if line.startswith(("#", "Thread")))


class Launch:
    """The processes of one launch by rank. They are gone when the context ends."""

    def __init__(self, ranks):
        self.ranks = ranks

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.kill()
        for rank in self.ranks:
            rank.process.wait()

    def __getitem__(self, index):
        return self.ranks[index]

    def __str__(self):
        return "\n".join(str(rank) for rank in self.ranks)

    def wait(self, seconds=PATIENCE, without=()):
        """Waits until all processes but some have ended; the seconds that it took."""
        begin = time.monotonic()
        for index, rank in enumerate(self.ranks):
            if index in without:
                continue
            try:
                rank.process.wait(max(0.01, begin + seconds - time.monotonic()))
            except subprocess.TimeoutExpired:
                stack = stack_of(rank.process.pid)
                raise AssertionError(f"{rank.name} still runs after {seconds} s\n{self}\n{stack}") from None
        return time.monotonic() - begin

    def codes(self):
        return [rank.process.returncode for rank in self.ranks]


def wait_for(what, condition, launch, seconds=PATIENCE, pause=0.01):
    """Polls until the condition holds. Returns its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        if all(rank.process.poll() is not None for rank in launch.ranks):
            raise AssertionError(f"the processes ended before {what}\n{launch}")
        time.sleep(pause)
    raise AssertionError(f"{what} did not happen within {seconds} s\n{launch}")


def records(folder, kind):
    """Of metrics.jsonl. The last line may be incomplete while a process writes."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            lines = file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def last_step(folder):
    steps = records(folder, "step")
    return steps[-1]["step"] if steps else 0


def saved_step(folder):
    with open(os.path.join(folder, "checkpoints/last/state.json"), encoding="utf-8") as file:
        return json.load(file)["step"]


def tensors(path):
    """The tensors of a safetensors file: the length of the header, the header in JSON, the values."""
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    result = {}
    for name, entry in header.items():
        first, last = (8 + length + place for place in entry["data_offsets"])
        values = array.array({"F32": "f", "F64": "d", "I64": "q"}[entry["dtype"]], content[first:last])
        if sys.byteorder == "big":
            values.byteswap()
        result[name] = values
    return result


def distance(one, other):
    """The norm of the difference of two tensors over the norm of the first."""
    norm = math.sqrt(sum(a * a for a in one))
    difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
    return difference / norm if norm > 0.0 else difference


def marked_processes(mark):
    """The processes that have the mark in their environment and have not ended."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                if f"{MARK}={mark}\0".encode() in file.read():
                    found.append(int(name))
    return found


class WorkersTest(unittest.TestCase):
    """Launches processes in a folder of its own, and checks that none is left."""

    def setUp(self):
        self.work = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.work)
        self.launches = 0
        self.begin = time.monotonic()
        os.environ["RENORM_CACHE"] = cache_folder()
        os.environ["NO_COLOR"] = "1"
        self.addCleanup(self.check_orphans)
        self.mark = f"{os.getpid()}-{self.id()}"

    def tearDown(self):
        print(f"{self.id().split('.', 1)[1]}: {time.monotonic() - self.begin:.1f} s", flush=True)

    def check_orphans(self):
        orphans = marked_processes(self.mark)
        for process in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.assertEqual(orphans, [], "processes are left")

    def path(self, name):
        return os.path.join(self.work, name)

    def start(self, name, command, variables, folder=None):
        return Rank(self.work, f"{self.launches}-{name}", command, {**variables, MARK: self.mark}, folder)

    def command(self, out, *arguments):
        defaults = [word for name, value in SETTINGS.items() if name not in arguments for word in (name, value)]
        return [RENORM, "train", "--out", self.path(out), *defaults, *arguments]

    def launch(self, size, out, *arguments, port=None, extra=None, variables_of=None):
        """Starts all ranks by hand, with the variables of torchrun. `extra` has arguments of single ranks."""
        self.launches += 1
        port = port or free_port()
        variables_of = variables_of or (lambda rank: torchrun_variables(rank, size, port) if size > 1 else {})
        return Launch([self.start(f"rank-{rank}", self.command(out, *arguments, *(extra or {}).get(rank, [])),
                                  variables_of(rank)) for rank in range(size)])

    def mpirun(self, size, out, *arguments, options=()):
        """Starts mpirun. Each rank writes its exit code into the folder codes."""
        self.launches += 1
        codes = self.path(f"codes-{self.launches}")
        os.mkdir(codes)
        # The shell outlives the signals, which mpirun sends to the shell as well. A command that it starts does not, so
        # the code is written by the shell itself.
        script = 'trap : TERM USR1; "$@"; code=$?; echo $code >"$0/$OMPI_COMM_WORLD_RANK"; exit $code'
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(size), *options, "sh", "-c", script,
                   codes, *self.command(out, *arguments)]
        launch = Launch([self.start("mpirun", command, {})])
        launch.codes_folder = codes
        return launch

    def mpirun_codes(self, launch):
        """Those written so far, by rank. A file is empty for a moment."""
        result = []
        for name in sorted(os.listdir(launch.codes_folder), key=int):
            with open(os.path.join(launch.codes_folder, name), encoding="ascii") as file:
                code = file.read()
            if code.endswith("\n"):
                result.append(int(code))
        return result

    def rank_of_mpirun(self, rank):
        """The process of `renorm`, not of the shell that waits for it."""
        for process in marked_processes(self.mark):
            with open(f"/proc/{process}/environ", "rb") as environ:
                is_rank = f"\0OMPI_COMM_WORLD_RANK={rank}\0".encode() in b"\0" + environ.read()
            if is_rank and os.path.samefile(f"/proc/{process}/exe", RENORM):
                return process
        raise AssertionError(f"mpirun has no rank {rank}")

    def finish(self, launch, codes=0):
        """Waits for all ranks of a launch, which end with the same code or with one of a list each."""
        with launch:
            launch.wait()
            wanted = codes if isinstance(codes, list) else [codes] * len(launch.ranks)
            self.assertEqual(launch.codes(), wanted, str(launch))
        return launch

    def train(self, size, out, *arguments, **options):
        """A whole run."""
        return self.finish(self.launch(size, out, *arguments, **options))

    def whole(self, size, *arguments):
        """An undisturbed run of these settings, which the tests of a part share."""
        key = hashlib.sha256(repr((size, arguments)).encode()).hexdigest()[:16]
        folder = os.path.join(cache_folder(), f"run-{key}")
        if not os.path.exists(folder):
            self.train(size, folder, *arguments, variables_of=lambda rank: slurm_variables(rank, size))
        return folder

    def check_same(self, one, other, tolerance=TOLERANCE):
        """Loss curves and final weights agree."""
        for field in ("step", "loss", "gradient_norm"):
            curves = [array.array("d", (record[field] for record in records(self.path(out), "step")))
                      for out in (one, other)]
            self.assertEqual(len(curves[0]), len(curves[1]))
            self.assertGreater(len(curves[0]), 0)
            for step, (a, b) in enumerate(zip(*curves)):
                self.assertLessEqual(abs(a - b), tolerance * abs(a), f"{field} of record {step} of {other}")
        for name in self.tensor_files(one):
            pair = [tensors(self.path(f"{out}/checkpoints/last/{name}")) for out in (one, other)]
            self.assertEqual(pair[0].keys(), pair[1].keys())
            for key, values in pair[0].items():
                self.assertLessEqual(distance(values, pair[1][key]), tolerance, f"{key} in {name} of {other}")

    def tensor_files(self, out):
        files = os.listdir(self.path(f"{out}/checkpoints/last"))
        names = sorted(name for name in files if name.endswith(".safetensors"))
        self.assertIn("model.safetensors", names)
        self.assertIn("optimizer.safetensors", names)
        return names

    def check_same_bytes(self, one, other):
        self.assertEqual(self.tensor_files(one), self.tensor_files(other))
        for name in self.tensor_files(one):
            contents = []
            for out in (one, other):
                with open(self.path(f"{out}/checkpoints/last/{name}"), "rb") as file:
                    contents.append(file.read())
            self.assertTrue(contents[0] == contents[1], f"{name} of {one} and {other} differ")

    def meeting_places(self):
        """Folders of a rendezvous that are left."""
        return [name for _, folders, _ in os.walk(self.work) for name in folders if name.startswith(".rendezvous-")]

    def snapshot(self, out):
        """The contents of all files of a run by path. Locks and folders do not count."""
        result = {}
        for folder, _, names in os.walk(self.path(out)):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    result[os.path.relpath(path, self.path(out))] = file.read()
        return result


def open_mpi_version():
    """"mpirun (Open MPI) 4.1.4" is 4."""
    text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    return int(text.split(")")[1].split(".")[0])


def needs_mpirun(test):
    return unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")(test)
