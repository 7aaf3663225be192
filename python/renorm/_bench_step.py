"""A training step of a torchvision ResNet, original and converted."""
import copy
import statistics
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor, nn

from ._bench_layers import LAYOUTS, SEED, Disagreement
from ._bench_timing import Effort, Figure, measure
from .clip import ClipSchedule
from .convert import FusedReLU, convert

CLASSES = 1000


class Setting(NamedTuple):
    model: str
    batch: int
    pixels: int
    rounds: int


FULL = Setting("resnet50", 16, 160, 9)
QUICK = Setting("resnet18", 2, 64, 3)

# Relative to the norm of the whole gradient or output, in float64 and without averages in the result.
TOLERANCE = 1e-6

_PROFILED_STEPS = 3


def build(setting: Setting) -> nn.Module:
    import torchvision

    torch.manual_seed(SEED)
    return getattr(torchvision.models, setting.model)(num_classes=CLASSES)


def _batch(size: int, pixels: int, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(SEED)
    images = torch.randn(size, 3, pixels, pixels, generator=random, dtype=dtype)
    return images, torch.randint(CLASSES, (size,), generator=random)


def _results(model: nn.Module, images: Tensor, labels: Tensor) -> Dict[str, Tensor]:
    output = model(images)
    gradients = torch.autograd.grad(nn.functional.cross_entropy(output, labels), list(model.parameters()))
    model.eval()
    with torch.no_grad():
        evaluated = model(images)
    model.train()
    return {"output": output, "gradient": torch.cat([one.reshape(-1) for one in gradients]), "evaluation": evaluated}


def verify(setting: Setting) -> None:
    """The converted model as batchnorm gives the outputs and gradients of the original, in float64."""
    original = build(setting).double()
    for module in original.modules():  # averages of the variance are biased in one and not in the other
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.0
    converted = convert(copy.deepcopy(original), clip=ClipSchedule.batch_norm(), fuse_relu=True)
    batch = _batch(4, 64, torch.float64)
    theirs = _results(original, *batch)
    for name, ours in _results(converted, *batch).items():
        error = float((ours - theirs[name]).norm() / theirs[name].norm())
        if not error <= TOLERANCE:
            raise Disagreement(
                f"{setting.model}: {name} of the original and the converted model differ by {error:.1e} of their norm"
            )


def _step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


# The first entry with a word in the operator's name counts.
_GROUPS = [
    ("norm", ("batch_norm", "renorm", "move_averages", "count_clips")),
    ("convolution", ("conv", "mkldnn_reorder", "to_mkldnn")),
    ("relu", ("relu", "threshold", "clamp_min")),
    ("add", ("aten::add",)),
    ("optimizer", ("SGD", "_foreach", "aten::mul_", "zero_grad")),
]


def _profile(step: Callable[[], None]) -> Dict[str, float]:
    """Milliseconds of a step by kind of operator: for each the lowest of a few steps. Wall time."""
    lowest: Dict[str, float] = {}
    for _ in range(_PROFILED_STEPS):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step()
        times: Dict[str, float] = {}
        for event in profile.key_averages():
            group = next((name for name, words in _GROUPS if any(word in event.key for word in words)), "other")
            times[group] = times.get(group, 0.0) + event.self_cpu_time_total / 1e3
        for group, time in times.items():
            lowest[group] = min(time, lowest.get(group, time))
    return lowest


def run(setting: Setting, layout: str, threads: int) -> Dict[str, Any]:
    images, labels = _batch(setting.batch, setting.pixels, torch.float32)
    images = images.contiguous(memory_format=LAYOUTS[layout])
    models = {"original": build(setting), "converted": convert(build(setting), fuse_relu=True)}
    steps = {
        name: _step(model.to(memory_format=LAYOUTS[layout]).train(), images, labels) for name, model in models.items()
    }
    for step in steps.values():  # allocates gradients and momentum
        step()
    figures = measure(steps, Effort(0.0, setting.rounds, setting.rounds, 0.0), threads)
    ratios = ratios_by_round(figures["original"], figures["converted"])
    return {
        "model": setting.model,
        "batch": setting.batch,
        "pixels": setting.pixels,
        "layout": layout,
        "relus_fused": sum(isinstance(module, FusedReLU) for module in models["converted"].modules()),
        "figures": {name: figure.to_json() for name, figure in figures.items()},
        "ratio_median": statistics.median(ratios),
        "ratios": ratios,
        "profile_ms": {name: _profile(step) for name, step in steps.items()},
    }


def ratios_by_round(peer: Figure, ours: Figure) -> List[float]:
    return [theirs / own for theirs, own in zip(peer.samples, ours.samples)]
