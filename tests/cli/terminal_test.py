#!/usr/bin/env python3
"""`renorm train` and `renorm reproduce` on terminals of several widths: what is rewritten fits, and what stays is clean.

usage: terminal_test.py RENORM
"""
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time

RENORM = sys.argv[1]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SETTINGS = [
    "--data", "strokes:classes=10,train=20,test=5,size=12", "--model", "convnet:8/2,16/2", "--minibatch", "20",
    "--threads", "1", "--log-every", "50",
]


def run(folder, columns, arguments, environment=None, stop_at=None, command=("train", *SETTINGS)):
    """The exit code and everything written to a terminal of so many columns; SIGINT when `stop_at` appears."""
    pid, terminal = pty.fork()
    if pid == 0:
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        clean.update({"TERM": "xterm", **(environment or {})})
        words = [RENORM, *command, "--out", folder] + arguments
        os.execvpe(words[0], words, clean)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
        if stop_at is not None and stop_at in output:
            os.kill(pid, signal.SIGINT)
            stop_at = None
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, output.decode().replace("\r\n", "\n")


def rewritten_lines(output):
    return [COLOUR.sub("", text) for text in re.findall(r"\r([^\r\n]*)\x1b\[K", output) if text]


def check_widths(work):
    for columns in [200, 100, 60, 30, 12]:
        folder = os.path.join(work, "columns-%d" % columns)
        # Half a second on a fast machine: several lines after the hold.
        started = time.monotonic()
        code, output = run(folder, columns, ["--steps", "1500", "--eval-every", "750"])
        seconds = time.monotonic() - started
        assert code == 0, (code, output)
        lines = [line for line in rewritten_lines(output) if line.startswith("step")]
        assert lines, output
        # At most ten per second, although the steps take a few milliseconds each.
        assert len(lines) <= 10 * seconds + 5, (len(lines), seconds)
        for line in lines:
            assert len(line) < columns, (columns, line)
        has = {name for name in ["images/s", "loss", "accuracy", "lr", "r_max", "clipped r", "left"] if name in lines[-1]}
        if columns == 200:
            assert len(has) == 7, lines[-1]
        if columns == 60:
            assert {"loss", "accuracy", "left"} <= has and "clipped r" not in has, lines[-1]
        if columns == 30:
            assert "loss" in has and "r_max" not in has, lines[-1]
        stays = COLOUR.sub("", output)
        assert stays.count("test accuracy") == 3, stays  # two evaluations and the result
        assert "saved " in stays
        # Nothing is left of the rewritten line.
        assert re.search(r"\r\x1b\[K[^\r]*$", output), repr(output[-300:])


def check_short_run(work):
    """The first step is shown, also right after the progress of making data."""
    data = "strokes:classes=10,train=20,test=6,size=12"
    code, output = run(os.path.join(work, "short"), 200, ["--steps", "1"], command=("train", "--data", data, *SETTINGS[2:]))
    assert code == 0, (code, output)
    assert "making data" in output and any(line.startswith("step 1/1") for line in rewritten_lines(output)), output


def check_colour(work):
    _, coloured = run(os.path.join(work, "coloured"), 80, ["--steps", "50"])
    assert COLOUR.search(coloured), coloured
    _, plain = run(os.path.join(work, "plain"), 80, ["--steps", "50"], {"NO_COLOR": "1"})
    assert not COLOUR.search(plain), plain
    _, dumb = run(os.path.join(work, "dumb"), 80, ["--steps", "50"], {"TERM": "dumb"})
    assert "\x1b" not in dumb and "\r" not in dumb, dumb


def check_hold(work):
    """No clipped fractions in the hold, and none of the hold after it."""
    arguments = ["--steps", "4000", "--eval-every", "4000", "--clip", "hold:2000,r:3@2800,d:5@2800"]
    assert SETTINGS[-2] == "--log-every"
    command = ("train", *SETTINGS[:-1], "3990")
    code, output = run(os.path.join(work, "hold"), 200, arguments, command=command)
    assert code == 0, (code, output)
    lines = [line for line in rewritten_lines(output) if line.startswith("step")]
    held = [line for line in lines if "r_max 1.00  d_max 0.00" in line]
    assert held and all(" hold " in line for line in held), held
    later = [line for line in lines if line not in held]
    assert later and not any(" hold " in line for line in later), later
    unrecorded = [line for line in lines if int(re.match(r"step (\d+)/", line)[1]) < 3990]
    assert not any("clipped" in line for line in unrecorded), unrecorded


def check_interrupt(work):
    folder = os.path.join(work, "interrupted")
    code, output = run(folder, 80, ["--steps", "100000", "--eval-every", "100000"], stop_at=b"images/s")
    assert code == 75, (code, output)
    assert "stopping after this step; again to end at once" in output, output
    assert re.search(r"renorm: stopped after step \d+ of 100000; continue with --resume\n$", output), output[-300:]


def check_table(work):
    """The table of `reproduce` is drawn over itself: as many lines go up as were drawn, and it is gone in the end."""
    command = ("reproduce", "--data", "strokes:classes=40,train=6,test=3,size=12", "--model", "convnet:8/2,16/2",
               "--arms", "iid-batchnorm,blocks-renorm", "--steps", "2000", "--jobs", "2")
    for columns in [100, 30]:
        folder = os.path.join(work, "table-%d" % columns)
        code, output = run(folder, columns, [], command=command)
        assert code == 0, (code, output)
        tables = re.findall(r"((?:[^\r\n]*\x1b\[K\n){3}[^\r\n]*\x1b\[K)", output)
        assert len(tables) > 2, output
        for table in tables:
            lines = [COLOUR.sub("", line).replace("\x1b[K", "") for line in table.split("\n")]
            assert all(len(line) < columns for line in lines), (columns, lines)
            assert "iid-batchnorm" in lines[2] and "blocks-renorm" in lines[3], lines
        assert output.count("\r\x1b[3A") == len(tables), (output.count("\r\x1b[3A"), len(tables))
        result = output[output.rindex("\x1b[J"):]
        assert "\r\x1b[3A\x1b[K\x1b[J" in output and "report" in result, result


def main():
    work = tempfile.mkdtemp()
    os.environ["RENORM_CACHE"] = os.path.join(work, "cache")
    try:
        check_widths(work)
        check_short_run(work)
        check_colour(work)
        check_hold(work)
        check_interrupt(work)
        check_table(work)
    finally:
        shutil.rmtree(work)
    print("all passed")


main()
