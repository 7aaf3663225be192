"""The checks of a layer: options, input, averages and statistics, each with one sentence."""
import warnings
from numbers import Real
from typing import Any, Optional, Set

import torch
from torch import Tensor

from . import _tensors
from .clip import ClipSchedule

_CHOICES = {
    "grouping": ("contiguous", "strided"),
    "activation": ("none", "relu"),
    "statistics": ("immediate", "deferred"),
}
# The options that may be changed at any time.
OPTIONS = frozenset([*_CHOICES, "eps", "momentum", "group_size", "clip"])


def check_module(function: str, model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"renorm.{function}: model must be a torch.nn.Module, got {model!r:.60}")


def checked_option(owner: str, option: str, value: Any) -> Any:
    """The value in its own type; an error if the option cannot have it."""
    if option in _CHOICES:
        if value not in _CHOICES[option]:
            known = " or ".join(repr(name) for name in _CHOICES[option])
            raise ValueError(f"{owner}: {option} must be {known}, got {value!r}")
        return value
    if option == "clip":
        if not isinstance(value, ClipSchedule):
            raise TypeError(f"{owner}: clip must be a ClipSchedule such as ClipSchedule.paper(20000), got {value!r}")
        return value._checked()
    if option == "momentum" and value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{owner}: {option} must be a number, got {value!r:.60}")
    if option == "group_size":
        if not value >= 0 or value % 1 != 0:
            raise ValueError(f"{owner}: group_size must be an integer >= 0, got {value}")
        return int(value)
    if option == "eps" and not value > 0:
        raise ValueError(f"{owner}: eps must be > 0, got {value}")
    if option == "momentum" and not 0 <= value <= 1:
        raise ValueError(f"{owner}: momentum must be in [0, 1] or None, got {value}")
    return float(value)


warned: Set[str] = set()


def warn_once(subject: str, text: str) -> None:
    """Warns of each subject once per process."""
    if subject not in warned:
        warned.add(subject)
        warnings.warn(text, stacklevel=4)


class Checked(torch.nn.Module):
    """The base of BatchRenorm, which has the attributes."""

    def _called(self) -> str:
        """The layer in an error, in TorchScript without its name."""
        called = self._kind
        if not torch.jit.is_scripting():
            called = self._who()
        return called

    def _check_shape(self, input: Tensor, residual: Optional[Tensor]) -> None:
        rank = input.dim()
        low, high = self._ranks
        if rank < low or rank > high:
            raise ValueError(f"{self._called()}: input must be {self._shapes}, got {rank} dimension(s)")
        if not input.is_floating_point():
            raise TypeError(f"{self._called()}: input must have a floating dtype, got {input.dtype}")
        # 2^-150, half of the smallest float32 above 0: this and smaller numbers round to 0.
        if self.eps <= 7.006492321624085e-46 and input.dtype != torch.float64:
            raise ValueError(f"{self._called()}: eps must be > 0 as a float32, got {self.eps}")
        if residual is not None and not torch.jit.is_tracing():
            if residual.shape != input.shape or residual.dtype != input.dtype:
                raise ValueError(f"{self._called()}: residual must have the shape and the dtype of the input")

    def _check_input(self, input: Tensor, residual: Optional[Tensor]) -> None:
        self._check_shape(input, residual)
        if self.training or self.batch_statistics:
            # A single example with a single position, or groups of them.
            if self.group_size > 0 or input.numel() == self.num_features:
                self._check_groups(input)

    def _check_groups(self, input: Tensor) -> None:
        batch = input.shape[0]
        examples = batch
        if self.training and self.group_size > 0:
            examples = self.group_size
            if batch % examples != 0:
                raise ValueError(
                    f"{self._called()}: group_size must divide the batch, got group_size {examples} and a batch of "
                    f"{batch}"
                )
        if examples == 1 and input.numel() == batch * self.num_features:
            raise ValueError(
                f"{self._called()}: input must have more than one value per channel and group when it is normalized "
                f"with its own statistics, got shape {input.shape} and group_size {self.group_size}; use a larger batch or "
                "group_size, or eval()"
            )

    def _misfit(self, input: Tensor) -> str:
        """What does not fit the layer, channels or dtype; "" if both do."""
        if input.shape[1] != self.num_features:
            return f"input must have {self.num_features} channels in dimension 1, got {input.shape[1]}"
        held: Optional[Tensor] = self.running_mean
        if held is None:
            held = self.weight
        if held is None:
            held = self.bias
        if held is None or (held.dtype == torch.float64) == (input.dtype == torch.float64):
            return ""
        if input.dtype == torch.float64:
            return "a float32 layer does not take float64 input"
        return "a float64 layer takes float64 input only"

    def _check_fit(self, input: Tensor) -> None:
        """The checks of the kernels that tensor operations do not make: they broadcast and promote."""
        if torch.jit.is_tracing():
            return
        problem = self._misfit(input)
        if len(problem) > 0:
            raise RuntimeError(f"{self._called()}: {problem}")

    @torch.jit.unused
    def _check_averages(self, mean: Tensor, std: Tensor) -> None:
        """Averages on other devices are not read."""
        if torch.jit.is_tracing() or _tensors.is_compiling() or _tensors.in_transform():
            return
        if not std.is_cpu or type(std) is not Tensor:
            return
        good = mean.isfinite()
        if not good.all():
            channel = int(good.logical_not().nonzero()[0])
            raise RuntimeError(
                f"{self._who()}: running_mean must be finite, got {mean[channel].item()} in channel {channel}"
            )
        good = std.isfinite() & (std > 0)
        if not good.all():
            channel = int(good.logical_not().nonzero()[0])
            raise RuntimeError(
                f"{self._who()}: running_std must be finite and > 0, got {std[channel].item()} in channel {channel}"
            )

    @torch.jit.unused
    def _check_finite(self, batch_mean: Tensor, batch_std: Tensor) -> None:
        bad = (batch_mean.isfinite() & batch_std.isfinite()).logical_not().nonzero()
        if len(bad) > 0:
            raise RuntimeError(
                f"{self._who()}: the batch statistics of channel {int(bad[0][1])} are not finite (step "
                f"{self.num_batches_tracked.item()}); look for overflow or NaN in the input"
            )

    @torch.jit.unused
    def _who(self) -> str:
        kind = f"renorm.{type(self).__name__}"
        return f"{kind} {self.name!r}" if self.name else kind

    @torch.jit.unused
    def _explained(self, error: RuntimeError, input: Tensor) -> RuntimeError:
        """The error of an operator in terms of the layer."""
        problem = self._misfit(input)
        if problem:
            return RuntimeError(f"{self._who()}: {problem}")
        line = str(error).split("\n")[0]
        return RuntimeError(f"{self._who()}: {line.partition(': ')[2] or line}") if "renorm::" in str(error) else error

    @torch.jit.unused
    def _warn_of_hold(self) -> None:
        """Of a layer that has trained and was never more than batchnorm. Other devices are not read."""
        counts = self.clip_counts
        if type(counts) is not Tensor or not counts.is_cpu or counts[0] == 0:
            return
        step = int(self.num_batches_tracked)
        if step > self.clip.hold + 1:
            return
        if step == 0:
            warn_once(
                "hold",
                f"{self._who()}: this layer has been plain batchnorm so far, because no training step was counted; with "
                "deferred statistics, renorm.commit(model) counts one",
            )
            return
        warn_once(
            "hold",
            f"{self._who()}: after {step} training step{'s' if step > 1 else ''} this layer has been plain batchnorm so "
            f"far, because its clip schedule holds until step {self.clip.hold}; for a run of N steps use "
            "clip=ClipSchedule.paper(N) or renorm.set_clip(model, ...)",
        )

    @torch.jit.unused
    def _warn_of_uncommitted(self) -> None:
        groups = self.collected_groups.item() if self.collected_groups.is_cpu else 0
        if groups > 0:
            warn_once(
                "uncommitted",
                f"{self._who()}: evaluated while deferred statistics of {groups} groups are not in the averages; call "
                "renorm.commit(model) after each training step",
            )
