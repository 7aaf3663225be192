"""python -m renorm.bench: the speed of renorm's layers against PyTorch's on this machine."""
import argparse
import difflib
import gc
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional

import torch
from torch import nn

from . import __version__, _bench_report, _bench_step, _library
from ._bench_layers import (
    LAYOUTS, Case, Data, Disagreement, Layer, batch_norm, field, ours, tensor_renorm, verify, verify_compiled
)
from ._bench_timing import (
    Effort, Progress, clock_name, keep_freed_memory, machine, malloc_setting, measure, notes, torch_setting
)
from .clip import ClipSchedule
from .modules import BatchRenorm2d

SECTIONS = {
    "tiny": "the overhead of one call, on a small tensor",
    "layers": "one layer in training on shapes of ResNet-50, against BatchNorm2d + ReLU and tensor operations",
    "step": "a training step of a torchvision ResNet-50, original and converted",
    "compile": "the peers of `layers` under torch.compile (PyTorch 2)",
}
QUICK_SECTIONS = ["tiny", "layers", "step"]  # a compilation alone takes longer than all others
MAX_THREADS = 1024

TINY_SHAPE = (4, 16, 4, 4)
BATCH = 32
SHAPES = [
    (64, 112, 112), (64, 56, 56), (256, 56, 56), (128, 28, 28), (512, 28, 28), (256, 14, 14), (1024, 14, 14),
    (512, 7, 7), (2048, 7, 7),
]
QUICK_SHAPES = [(64, 14, 14), (256, 7, 7)]
COMPILE_SHAPES = [(256, 56, 56), (1024, 14, 14)]

TINY_EFFORT = Effort(seconds=5.0, min_rounds=50, max_rounds=1000, sample_seconds=1e-3)
QUICK_TINY_EFFORT = TINY_EFFORT._replace(seconds=0.5, min_rounds=20)
LAYER_EFFORT = Effort(seconds=2.0, min_rounds=5, max_rounds=100, sample_seconds=3e-4)
QUICK_LAYER_EFFORT = LAYER_EFFORT._replace(seconds=0.3, min_rounds=3)


class Options(argparse.Namespace):
    json: Optional[Path]
    force: bool
    quick: bool
    threads: int
    only: Optional[List[str]]
    fresh_memory: bool


class Unavailable(RuntimeError):
    """A section that cannot run here, and why."""


def _tiny_competitors() -> Dict[str, nn.Module]:
    torch.manual_seed(0)
    channels = TINY_SHAPE[1]
    return {"ours": BatchRenorm2d(channels, clip=ClipSchedule.paper()), "batch_norm": nn.BatchNorm2d(channels)}


def run_tiny(options: Options, progress: Progress) -> Dict[str, Any]:
    """Microseconds per call, where the overhead of Python and of the dispatcher is nearly all."""
    case = Case(TINY_SHAPE, "nchw")
    verify(case, Data(case))
    x = torch.randn(TINY_SHAPE)
    with_gradient = torch.randn(TINY_SHAPE).requires_grad_()
    dy = torch.randn(TINY_SHAPE)

    def forward(module: nn.Module) -> Callable[[], Any]:
        return lambda: module(x)

    def both(module: nn.Module) -> Callable[[], Any]:
        wanted = [with_gradient, module.weight, module.bias]
        return lambda: torch.autograd.grad(module(with_gradient), wanted, dy)

    settings = [  # name, run, training, gradients recorded, aim
        ("training", forward, True, True, 1.3),
        ("training, forward + backward", both, True, True, None),
        ("evaluation", forward, False, False, 1.0),
        ("evaluation, gradients recorded", forward, False, True, 1.0),
    ]
    cases = []
    for name, run, training, recorded, aim in settings:
        progress.show(f"tiny: {name}")
        competitors = {key: run(module.train(training)) for key, module in _tiny_competitors().items()}
        with torch.set_grad_enabled(recorded):
            figures = measure(competitors, QUICK_TINY_EFFORT if options.quick else TINY_EFFORT, options.threads)
        cases.append({
            "name": name,
            "aim": aim,
            "figures": {key: figure.to_json() for key, figure in figures.items()},
            "ratio_best": figures["ours"].best / figures["batch_norm"].best,
            "ratio_median": figures["ours"].median / figures["batch_norm"].median,
        })
    return {"shape": case.shape_name(), "cases": cases}


def _cases(options: Options, shapes: List[Any]) -> List[Case]:
    batch, chosen = (8, QUICK_SHAPES) if options.quick else (BATCH, shapes)
    return [Case((batch, *shape), layout) for layout in LAYOUTS for shape in chosen]


def _measure_layers(case: Case, layers: Dict[str, Layer], options: Options, show: Callable[[str], None]) -> List[Any]:
    effort = QUICK_LAYER_EFFORT if options.quick else LAYER_EFFORT
    measured = []
    for which in _bench_report.PASS_NAMES:
        show(_bench_report.PASS_NAMES[which])
        figures = measure({name: getattr(layer, which) for name, layer in layers.items()}, effort, options.threads)
        measured.append({
            "shape": case.shape_name(),
            "layout": case.layout,
            "pass": which,
            "figures": {name: figure.to_json() for name, figure in figures.items()},
        })
    return measured


def _summarized(cases: List[Dict[str, Any]]) -> Dict[str, Any]:
    means = {
        f"geometric_mean_{name}": _bench_report.geometric_means(cases, f"{name}_us") for name in ("best", "median")
    }
    return {"cases": cases, **means}


def run_layers(options: Options, progress: Progress) -> Dict[str, Any]:
    measured = []
    cases = _cases(options, SHAPES)
    for number, case in enumerate(cases, 1):
        def show(what: str) -> None:
            progress.show(f"layers [{number}/{len(cases)}] {case.layout} {case.shape_name()}: {what}")

        show("checking that all competitors agree")
        data = Data(case)
        verify(case, data)
        measured += _measure_layers(case, field(case, data), options, show)
        gc.collect()
    return _summarized(measured)


def run_step(options: Options, progress: Progress) -> Dict[str, Any]:
    if importlib.util.find_spec("torchvision") is None:
        raise Unavailable("torchvision is not installed")
    setting = _bench_step.QUICK if options.quick else _bench_step.FULL
    progress.show("step: checking that both models agree")
    _bench_step.verify(setting)
    cases = []
    for layout in LAYOUTS:
        progress.show(f"step: {setting.model} {layout}, {setting.rounds} rounds")
        cases.append(_bench_step.run(setting, layout, options.threads))
        gc.collect()
    return {"tolerance": _bench_step.TOLERANCE, "cases": cases}


def _inductor_instructions() -> str:
    """The instruction set that Inductor compiles for."""
    try:
        try:
            from torch._inductor.cpu_vec_isa import pick_vec_isa
        except ImportError:
            from torch._inductor.codecache import pick_vec_isa
        return str(pick_vec_isa()).lower() if pick_vec_isa() else "scalar"
    except Exception as error:
        return f"unknown: {type(error).__name__}"


def _inductor_notes(instructions: str) -> List[str]:
    found = [
        "Compiled tensor operations are checked by their output only: their backward computes r and d again, from "
        "averages that have moved."
    ]
    if instructions == "scalar" and "avx2" in machine()["simd_flags"]:
        found.append(
            "Inductor compiles scalar code here, so its times are too long; on Debian 13 install libsleef-dev and set "
            "LD_PRELOAD=libsleef.so.3."
        )
    return found


def _compiled_field(case: Case, data: Data) -> Dict[str, Layer]:
    """Eager and compiled competitors. The first call compiles."""
    makers = {"ours": ours, "batch_norm_relu": batch_norm, "tensor_ops": tensor_renorm}
    layers = {name: makers[name](case, data) for name in ("ours", "batch_norm_relu")}
    for name, make in makers.items():
        compiled = make(case, data).compiled()
        where = f"{case.shape_name()} {case.layout}, {name} eager and compiled"
        verify_compiled(where, make(case, data), compiled, gradients=name != "tensor_ops")
        compiled.both()
        layers[f"{name}_compiled"] = compiled
    return layers


def run_compile(options: Options, progress: Progress) -> Dict[str, Any]:
    if not hasattr(torch, "compile"):
        raise Unavailable(f"PyTorch {torch.__version__} has no torch.compile")
    measured = []
    cases = _cases(options, COMPILE_SHAPES)
    if options.quick:
        cases = cases[:1]
    for number, case in enumerate(cases, 1):
        def show(what: str) -> None:
            progress.show(f"compile [{number}/{len(cases)}] {case.layout} {case.shape_name()}: {what}")

        show("compiling")
        torch._dynamo.reset()
        try:
            layers = _compiled_field(case, Data(case))
        except Disagreement:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
            raise Unavailable(f"torch.compile does not work here: {type(error).__name__}: {reason}") from None
        measured += _measure_layers(case, layers, options, show)
    instructions = _inductor_instructions()
    return {"inductor": instructions, "notes": _inductor_notes(instructions), **_summarized(measured)}


def _why_not_judged(options: Options) -> Optional[str]:
    if options.quick:
        return "--quick measures other shapes"
    if options.threads != 1:
        return "they are for one thread"
    if not _library.has_kernels:
        return "there is no compiled library"
    return None


def run(options: Options, arguments: List[str]) -> Dict[str, Any]:
    """All figures, as they go into the JSON file. `arguments` are those of the command line."""
    kept = None if options.fresh_memory else keep_freed_memory()
    torch.set_num_threads(options.threads)
    clock = "CPU time of the process" if options.threads == 1 else "wall time"
    why_not = _why_not_judged(options)
    record: Dict[str, Any] = {
        "schema": 1,
        "command": ["python3", "-m", "renorm.bench", *arguments],
        "renorm": __version__,
        "library": "compiled library" if _library.has_kernels else "no compiled library",
        "machine": machine(),
        "torch": torch_setting(),
        "threads": options.threads,
        "quick": options.quick,
        "malloc": malloc_setting(kept),
        "clock": clock_name(options.threads),
        "statistic": f"{clock}, best sample of interleaved rounds; training step: median over rounds",
        "results": {},
        "skipped": {},
    }
    record["notes"] = notes(record["torch"], record["machine"]["simd_flags"])
    progress = Progress()
    runs = {"tiny": run_tiny, "layers": run_layers, "step": run_step, "compile": run_compile}
    try:
        for name in options.only or (QUICK_SECTIONS if options.quick else list(SECTIONS)):
            try:
                record["results"][name] = runs[name](options, progress)
            except Unavailable as error:
                record["skipped"][name] = str(error)
    finally:
        progress.clear()
    record["machine"]["load_average_after"] = list(os.getloadavg())
    record["aims_apply"] = why_not is None
    record["aims_apply_not_because"] = why_not
    record["aims"] = [aim.to_json() for aim in _bench_report.aims(record["results"])]
    return record


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _threads(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_THREADS):
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_THREADS}, got '{text}'")
    return int(text)


def _sections(text: str) -> List[str]:
    names = text.split(",")
    for name in names:
        if name not in SECTIONS:
            near = difflib.get_close_matches(name, SECTIONS, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(SECTIONS)}"
            raise argparse.ArgumentTypeError(f"unknown section '{name}'; {hint}")
    return list(dict.fromkeys(names))


def _writable(text: str) -> Path:
    path = Path(text)
    if not text or path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' must be a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder '{path.parent}' does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"'{text}' cannot be written")
    return path


def _is_output(path: Path) -> bool:
    """Whether the file is empty or has figures of this command."""
    if path.stat().st_size == 0:
        return True
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and {"machine", "torch", "results", "skipped"} <= record.keys()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m renorm.bench", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures renorm's layers against PyTorch's on this machine.\n\n"
        "Competitors are first checked against each other, outputs and gradients, and then run interleaved in one\n"
        "process. With one thread a time is CPU time, otherwise wall time. Standard output shows the tables, and the\n"
        "aims of the project beside the results. A full run takes about ten minutes on a quiet machine.",
        epilog="sections:\n" + "".join(f"  {name:8} {what}\n" for name, what in SECTIONS.items())
        + "\nexit codes: 0 measured, whether or not the aims are reached; 1 competitors disagree; 2 wrong usage;\n"
        "  130 interrupted",
    )
    parser.add_argument("--json", type=_writable, metavar="FILE", help="also write all figures to this file")
    parser.add_argument(
        "--force", action="store_true", help="let --json replace a file that is no output of this command"
    )
    parser.add_argument(
        "--quick", action="store_true",
        help="small shapes and few rounds, under 20 seconds; sections "
        f"{','.join(QUICK_SECTIONS)} unless --only names others",
    )
    parser.add_argument(
        "--threads", type=_threads, default=1, metavar="N", help="threads of PyTorch [1]; aims are for 1"
    )
    parser.add_argument("--only", type=_sections, metavar="LIST", help="only these sections, separated by commas [all]")
    parser.add_argument(
        "--fresh-memory", action="store_true",
        help="let malloc return freed memory to the system, as the environment sets it, so that page faults are "
        "measured too",
    )
    return parser


def _parsed(arguments: List[str]) -> Options:
    parser = _parser()
    options = parser.parse_args(arguments, Options())
    path = options.json
    if path is not None and path.is_file() and not options.force and not _is_output(path):
        parser.error(
            f"argument --json: '{path}' exists and is not an earlier output of this command; choose another file, or "
            "replace it with --force"
        )
    return options


def _write(path: Path, content: str) -> None:
    if path.exists() and not path.is_file():  # such as /dev/stdout
        path.write_text(content)
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def main(arguments: Optional[List[str]] = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parsed(arguments)
    try:
        record = run(options, arguments)
    except Disagreement as error:
        print(f"python -m renorm.bench: competitors disagree: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("python -m renorm.bench: stopped; nothing was written", file=sys.stderr)
        return 130
    print(_bench_report.text(record), end="")
    if options.json is not None:
        _write(options.json, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
