"""Interleaved timing, and the description of the machine that a figure needs."""
import ctypes
import gc
import os
import platform
import random
import re
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch

Competitors = Dict[str, Callable[[], Any]]

_ORDER_SEED = 1
_CALIBRATION_RUNS = 3
_MAX_CALLS = 1000


class Effort(NamedTuple):
    """Rounds end after `seconds`, but not before `min_rounds` and at the latest after `max_rounds`."""

    seconds: float
    min_rounds: int
    max_rounds: int
    sample_seconds: float  # a sample repeats short calls until it takes about this long


class Figure(NamedTuple):
    """Seconds per call over all samples of one competitor."""

    best: float
    median: float
    spread: float  # distance of the quartiles
    samples: List[float]
    calls_per_sample: int

    def to_json(self) -> Dict[str, Any]:
        return {
            "best_us": self.best * 1e6,
            "median_us": self.median * 1e6,
            "spread_us": self.spread * 1e6,
            "samples": len(self.samples),
            "calls_per_sample": self.calls_per_sample,
        }


def clock_name(threads: int) -> str:
    return "process_time" if threads == 1 else "perf_counter"


def _figure(samples: List[float], calls: int) -> Figure:
    quartiles = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [0.0, 0.0, 0.0]
    return Figure(min(samples), statistics.median(samples), quartiles[2] - quartiles[0], samples, calls)


def _seconds_per_call(run: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    turns = range(calls)
    start = clock()
    for _ in turns:
        run()
    return (clock() - start) / calls


def measure(competitors: Competitors, effort: Effort, threads: int) -> Dict[str, Figure]:
    """One sample of each competitor per round, in a new order each round. The first competitor sets the number of calls
    per sample. With one thread the clock is the CPU time of the process, otherwise wall time."""
    clock = getattr(time, clock_name(threads))
    first = next(iter(competitors.values()))
    best = min(_seconds_per_call(first, 1, clock) for _ in range(_CALIBRATION_RUNS))
    calls = max(1, min(_MAX_CALLS, round(effort.sample_seconds / max(best, 1e-9))))
    samples: Dict[str, List[float]] = {name: [] for name in competitors}
    order = list(competitors)
    shuffle = random.Random(_ORDER_SEED).shuffle
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for turn in range(effort.max_rounds):
            if turn >= effort.min_rounds and time.perf_counter() - start > effort.seconds:
                break
            shuffle(order)
            for name in order:
                samples[name].append(_seconds_per_call(competitors[name], calls, clock))
    finally:
        if collects:
            gc.enable()
    return {name: _figure(values, calls) for name, values in samples.items()}


# From malloc.h of glibc.
_MALLOPT = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1), "M_TOP_PAD": (-2, 64 << 20)}
_MALLOC_VARIABLES = ("GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> Optional[Dict[str, int]]:
    """Makes glibc keep freed memory for the next call, and returns the settings, or None with another C library.

    glibc returns freed blocks above 32 MB to the system. A competitor that allocates would then measure page faults,
    which cost more than its work. A program that trains reuses the same sizes."""
    if platform.libc_ver()[0] != "glibc":
        return None
    mallopt = ctypes.CDLL(None).mallopt
    return {name: value for name, (code, value) in _MALLOPT.items() if mallopt(code, value) == 1}


def malloc_setting(kept: Optional[Dict[str, int]]) -> Dict[str, Any]:
    found = {
        name: value for name, value in os.environ.items() if name.startswith("MALLOC_") or name in _MALLOC_VARIABLES
    }
    return {"environment": found, "mallopt": kept, "freed_memory": "kept" if kept else "as the environment sets it"}


_SIMD_PREFIXES = ("sse4", "avx", "fma", "f16c", "amx", "neon", "asimd", "sve", "vsx")


def _cpu_info() -> Dict[str, str]:
    """The first entry per name of /proc/cpuinfo. Empty where that cannot be read."""
    info: Dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                name, colon, value = line.partition(":")
                if colon:
                    info.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    return info


def machine() -> Dict[str, Any]:
    info = _cpu_info()
    flags = info.get("flags", info.get("Features", "")).split()
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "simd_flags": sorted(flag for flag in flags if flag.startswith(_SIMD_PREFIXES)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
    }


def torch_setting() -> Dict[str, Any]:
    usage = re.search(r"CPU capability usage: (.+)", torch.__config__.show())
    return {
        "version": torch.__version__,
        "cpu_capability": usage.group(1).strip() if usage else None,
        "mkldnn": torch.backends.mkldnn.is_available(),
        "mkl": torch.backends.mkl.is_available(),
        "compile": hasattr(torch, "compile"),
    }


def notes(setting: Dict[str, Any], simd_flags: List[str]) -> List[str]:
    """What makes figures of this machine doubtful."""
    found = []
    if setting["cpu_capability"] in ("DEFAULT", "NO AVX", "default"):
        if any(flag.startswith("avx2") for flag in simd_flags):
            found.append("PyTorch computes without AVX here, although the CPU has it, so its times are too long.")
        elif not simd_flags:
            found.append("/proc/cpuinfo cannot be read, so PyTorch computes without AVX and its times are too long.")
    return found


class Progress:
    """One line on the terminal that is written again and again. Silent where standard error is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._shown:
            width = max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
            sys.stderr.write("\r\x1b[K" + text[:width])
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
