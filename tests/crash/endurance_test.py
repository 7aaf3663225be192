#!/usr/bin/env python3
"""`renorm train` over time: memory, open files, two starts at once, pauses for checkpoints, jumps of the clock.

usage: endurance_test.py RENORM memory [MINUTES]         trains for MINUTES (60); memory and open files stay constant
       endurance_test.py RENORM race [ROUNDS]            two starts in one folder, ROUNDS times (100): one of them trains
       endurance_test.py RENORM pause [STEPS]            resnet18 with images of 224 and 32 pixels: the time of a
                                                         checkpoint; at 224 it is less than 2 % of that between two
       endurance_test.py RENORM clock CLOCK_LIBRARY      a clock that jumps changes no byte and no duration
"""
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

MAX_GROWTH = 0.02  # of resident memory, from a quarter of the time on
MAX_PAUSE = 0.02   # share of the time between two checkpoints, for images of the default size
PAUSE_SIZES = [224, 32]  # pixels; the default, and small images, whose steps are short beside the same checkpoint
DEFAULT_INTERVAL = 200  # steps between two checkpoints of a run of the default length
SMALL = ["--data", "strokes:classes=10,train=20,test=5,size=12", "--model", "convnet:8/2,16/2", "--minibatch", "10",
         "--threads", "1"]


def fail(sentence):
    sys.exit(f"FAILED: {sentence}")


def train(renorm, folder, arguments, **options):
    command = [renorm, "train", "--out", folder] + arguments
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)


def finish(process, codes=(0,)):
    """Standard error of a process that ends with one of the codes."""
    _, errors = process.communicate()
    if process.returncode not in codes:
        fail(f"{' '.join(process.args)} ended with code {process.returncode}: {errors.strip()}")
    return errors


def records(folder, kind):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [record for record in map(json.loads, file) if record["kind"] == kind]


def same_weights(one, other):
    for name in ["model", "average", "optimizer"]:
        files = [os.path.join(folder, "checkpoints/last", name + ".safetensors") for folder in (one, other)]
        if not filecmp.cmp(*files, shallow=False):
            fail(f"{files[0]} and {files[1]} differ")


def resident_kilobytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def memory(renorm, work, minutes="60"):
    seconds = 60 * float(minutes)
    # Far more steps than fit; a checkpoint and an evaluation every few seconds.
    run = train(renorm, work + "/run", SMALL + ["--steps", "100000000", "--log-every", "100", "--eval-every", "2000",
                                                "--quiet"])
    samples = []  # (kilobytes, open files)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(seconds / 200)
        if run.poll() is not None:
            fail(f"training ended early with code {run.returncode}: {run.stderr.read().strip()}")
        samples.append((resident_kilobytes(run.pid), len(os.listdir(f"/proc/{run.pid}/fd"))))
    run.terminate()
    finish(run, codes=(75,))
    first, last = samples[len(samples) // 4:len(samples) // 2], samples[len(samples) * 3 // 4:]
    before, after = max(kilobytes for kilobytes, _ in first), max(kilobytes for kilobytes, _ in last)
    # A sample may see a file of a checkpoint that is being written.
    files = [min(count for _, count in part) for part in (first, last)]
    steps = records(work + "/run", "step")[-1]["step"]
    print(f"memory: {before / 1024:.1f} MB in the second quarter, {after / 1024:.1f} MB in the last; "
          f"open files {files[0]} and {files[1]}; {steps} steps in {float(minutes):g} minutes")
    if after > (1 + MAX_GROWTH) * before:
        fail(f"memory grew by more than {100 * MAX_GROWTH:.0f} %")
    if files[0] != files[1]:
        fail("the number of open files changed")


def race(renorm, work, rounds="100"):
    settings = SMALL + ["--steps", "20", "--eval-every", "10", "--quiet"]
    finish(train(renorm, work + "/whole", settings))
    codes = {}
    for _ in range(int(rounds)):
        folder = work + "/run"
        both = [train(renorm, folder, settings) for _ in range(2)]
        for process in both:
            # 73: the other process trains now; 2: it has finished already.
            finish(process, codes=(0, 2, 73))
        ended = tuple(sorted(process.returncode for process in both))
        codes[ended] = codes.get(ended, 0) + 1
        if ended.count(0) != 1:
            fail(f"two starts in one folder ended with codes {ended} instead of 0 and 2 or 73")
        same_weights(work + "/whole", folder)
        shutil.rmtree(folder)
    print(f"race: {rounds} rounds, codes " + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())))


def pause_share(renorm, folder, size, steps):
    """The share of the training time that checkpoints take at the default interval."""
    run = train(renorm, folder, ["--data", f"strokes:classes=10,train=32,test=2,size={size}", "--model", "resnet18",
                                 "--steps", steps, "--log-every", "1", "--eval-every", steps, "--checkpoint-every", "1"])
    errors = finish(run)
    pauses = [float(line.rsplit(" in ", 1)[1].split()[0]) for line in errors.splitlines() if "  saved " in line]
    # The first step also allocates memory.
    speeds = [record["images_per_second"] for record in records(folder, "step")[1:]]
    step = 32 / (sum(speeds) / len(speeds))
    share = sum(pauses) / len(pauses) / (DEFAULT_INTERVAL * step)
    print(f"pause: with images of {size} pixels a checkpoint of resnet18 takes {sum(pauses) / len(pauses):.2f} s, at most "
          f"{max(pauses):.2f} s; a step {step:.2f} s; {100 * share:.2f} % of the time with a checkpoint every "
          f"{DEFAULT_INTERVAL} steps")
    return share


def pause(renorm, work, steps="6"):
    shares = {size: pause_share(renorm, f"{work}/run-{size}", size, steps) for size in PAUSE_SIZES}
    if shares[PAUSE_SIZES[0]] > MAX_PAUSE:
        fail(f"checkpoints take more than {100 * MAX_PAUSE:.0f} % of the time")


def clock(renorm, work, library):
    settings = SMALL + ["--steps", "40", "--log-every", "1", "--eval-every", "10", "--quiet"]
    finish(train(renorm, work + "/whole", settings))
    begin = time.monotonic()
    finish(train(renorm, work + "/run", settings, env=dict(os.environ, LD_PRELOAD=os.path.abspath(library))))
    took = time.monotonic() - begin
    same_weights(work + "/whole", work + "/run")
    with open(work + "/run/checkpoints/last/state.json", encoding="utf-8") as file:
        seconds = json.load(file)["seconds"]
    if not 0.0 < seconds <= took:
        fail(f"the run recorded {seconds} s of training in {took} s")
    for record in records(work + "/run", "step"):
        if not record["images_per_second"] > 0.0:
            fail(f"step {record['step']} has {record['images_per_second']} images per second")
    print(f"clock: the same weights, {seconds:.2f} s recorded of {took:.2f} s")


def main():
    parts = {"memory": memory, "race": race, "pause": pause, "clock": clock}
    if len(sys.argv) < 3 or sys.argv[2] not in parts:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as work:
        os.environ["RENORM_CACHE"] = work + "/cache"
        os.environ["NO_COLOR"] = "1"
        parts[sys.argv[2]](sys.argv[1], work, *sys.argv[3:])


main()
