"""The competitors of one layer, and the checks that they compute the same."""
from typing import Callable, Dict, List, NamedTuple, Sequence

import torch
from torch import Tensor, nn

from . import _library
from .clip import ClipSchedule
from .modules import BatchRenorm2d

SEED = 20170210
MOMENTUM = 0.01
EPS = 1e-5
R_MAX, D_MAX = 3.0, 5.0

LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}


class Disagreement(RuntimeError):
    """Competitors that must compute the same do not."""


class TensorRenorm2d(nn.Module):
    """Batch Renorm as it is commonly written with tensor operations; autograd differentiates it, r and d detached."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.register_buffer("running_mean", torch.zeros(1, channels, 1, 1))
        self.register_buffer("running_std", torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            mean = x.mean((0, 2, 3), keepdim=True)
            std = (x.var((0, 2, 3), unbiased=False, keepdim=True) + EPS).sqrt()
            r = (std.detach() / self.running_std).clamp(1 / R_MAX, R_MAX)
            d = ((mean.detach() - self.running_mean) / self.running_std).clamp(-D_MAX, D_MAX)
            x_hat = (x - mean) / std * r + d
            with torch.no_grad():
                self.running_mean += MOMENTUM * (mean - self.running_mean)
                self.running_std += MOMENTUM * (std - self.running_std)
        else:
            x_hat = (x - self.running_mean) / self.running_std
        return self.weight * x_hat + self.bias


class Case(NamedTuple):
    shape: Sequence[int]
    layout: str

    def shape_name(self) -> str:
        return "x".join(map(str, self.shape))


class Data:
    """The tensors of a case, equal for all competitors."""

    def __init__(self, case: Case) -> None:
        random = torch.Generator().manual_seed(SEED)
        channels = case.shape[1]

        def in_layout() -> Tensor:
            return torch.randn(*case.shape, generator=random).contiguous(memory_format=LAYOUTS[case.layout])

        self.x = in_layout().requires_grad_()
        self.dy = in_layout()
        self.weight = torch.rand(channels, generator=random) + 0.5
        self.bias = torch.randn(channels, generator=random) * 0.2
        self.running_mean = torch.randn(channels, generator=random) * 0.1
        self.running_std = torch.rand(channels, generator=random) * 0.2 + 0.9

    def fill(self, norm: nn.Module) -> nn.Module:
        """Gives the norm these parameters and averages. The clip schedule, if there is one, is past its ramp."""
        with torch.no_grad():
            for name in ("weight", "bias", "running_mean", "running_std"):
                if hasattr(norm, name):
                    tensor = getattr(norm, name)
                    tensor.copy_(getattr(self, name).reshape(tensor.shape))
            if hasattr(norm, "running_var"):
                norm.running_var.copy_(self.running_std.square() - EPS)
            if isinstance(norm, BatchRenorm2d):
                norm.num_batches_tracked.fill_(1_000_000)
        return norm


class Layer:
    """One competitor on the data of a case. `norm` holds the parameters, `run` the call."""

    def __init__(self, norm: nn.Module, run: Callable[[Tensor], Tensor], data: Data) -> None:
        self.norm, self.run, self.data = norm, run, data
        self.wanted = [data.x, norm.weight, norm.bias]

    def forward(self) -> Tensor:
        """A forward that records what the backward needs."""
        return self.run(self.data.x)

    def both(self) -> Sequence[Tensor]:
        """Forward and backward. Returns the gradients of input, weight and bias."""
        return torch.autograd.grad(self.run(self.data.x), self.wanted, self.data.dy)

    def compiled(self) -> "Layer":
        return Layer(self.norm, torch.compile(self.run, dynamic=False), self.data)


def ours(case: Case, data: Data, clip: ClipSchedule = ClipSchedule.paper(), activation: str = "relu") -> Layer:
    norm = data.fill(BatchRenorm2d(case.shape[1], EPS, MOMENTUM, activation=activation, clip=clip))
    return Layer(norm, norm, data)


def ours_without_library(case: Case, data: Data) -> Layer:
    layer = ours(case, data)
    layer.norm._kernels = False
    return layer


def _with_relu(norm: nn.Module, data: Data) -> Layer:
    return Layer(norm, nn.Sequential(norm, nn.ReLU(inplace=True)), data)


def batch_norm(case: Case, data: Data) -> Layer:
    return _with_relu(data.fill(nn.BatchNorm2d(case.shape[1], EPS, MOMENTUM)), data)


def tensor_renorm(case: Case, data: Data) -> Layer:
    return _with_relu(data.fill(TensorRenorm2d(case.shape[1])), data)


def field(case: Case, data: Data) -> Dict[str, Layer]:
    """All competitors of the section `layers`."""
    makers = {"ours": ours, "batch_norm_relu": batch_norm, "tensor_ops": tensor_renorm}
    if _library.has_kernels:
        makers["ours_without_library"] = ours_without_library
    return {name: make(case, data) for name, make in makers.items()}


# Errors are relative to the largest value. Peers sum in plain float, which gives a few 1e-4 over a million values.
# Behind a ReLU a value that rounds to the other side of zero gains or loses its whole gradient: a few values of the
# input's gradient may be off, and sums over a channel have a wider tolerance. A wrong formula gives far larger errors.
TOLERANCE = {"output": 2e-3, "input_gradient": 2e-3, "parameter_gradient": 2e-2, "average": 2e-3}
EXCEPTIONS = {"input_gradient": 1e-3}  # the fraction of values that may exceed the tolerance


def check_equal(where: str, kind: str, left: Tensor, right: Tensor) -> None:
    left, right = left.detach().reshape(-1), right.detach().reshape(-1)
    scale = max(float(right.max()), -float(right.min()))
    error = (left - right).abs_()
    # Not "greater": NaN must count too.
    off = error.numel() - int((error <= TOLERANCE[kind] * scale).sum())
    if off > EXCEPTIONS.get(kind, 0.0) * error.numel():
        raise Disagreement(
            f"{where}: {kind}: {off} of {error.numel()} values differ by more than {TOLERANCE[kind]} of the largest "
            f"value {scale:.3g}, by up to {float(error.max()):.3g}"
        )


def _check_layers(where: str, left: Layer, right: Layer, averages: List[str]) -> None:
    check_equal(where, "output", left.forward(), right.forward())
    for name in averages:
        check_equal(f"{where}, {name}", "average", getattr(left.norm, name), getattr(right.norm, name))
    kinds = ("input_gradient", "parameter_gradient", "parameter_gradient")
    for kind, one, other in zip(kinds, left.both(), right.both()):
        check_equal(where, kind, one, other)
    with torch.no_grad():
        for layer in (left, right):
            layer.norm.eval()
        check_equal(f"{where}, evaluation", "output", left.forward(), right.forward())
        for layer in (left, right):
            layer.norm.train()


def verify(case: Case, data: Data) -> None:
    """Compares outputs, gradients, averages and evaluation, of layers of its own because a forward moves averages."""
    where = f"{case.shape_name()} {case.layout}"
    averages = ["running_mean", "running_std"]
    as_batch_norm, theirs = ours(case, data, ClipSchedule.batch_norm()), batch_norm(case, data)
    # BatchNorm's average is that of the unbiased variance. With averages that stay, evaluation is the same.
    as_batch_norm.norm.momentum = theirs.norm.momentum = 0.0
    _check_layers(f"{where}, ours and BatchNorm2d", as_batch_norm, theirs, [])
    _check_layers(f"{where}, ours and tensor operations", ours(case, data), tensor_renorm(case, data), averages)
    if _library.has_kernels:
        without = ours_without_library(case, data)
        _check_layers(f"{where}, ours with and without library", ours(case, data), without, averages)


def verify_compiled(where: str, eager: Layer, compiled: Layer, gradients: bool) -> None:
    """Each has its own norm, and both start from the averages of the data. With gradients=False only the outputs must
    agree."""
    assert eager.norm is not compiled.norm
    for layer in (eager, compiled):
        layer.data.fill(layer.norm)
    check_equal(where, "output", compiled.forward(), eager.forward())
    if gradients:
        for layer in (eager, compiled):
            layer.data.fill(layer.norm)
        kinds = ("input_gradient", "parameter_gradient", "parameter_gradient")
        for kind, one, other in zip(kinds, compiled.both(), eager.both()):
            check_equal(where, kind, one, other)
