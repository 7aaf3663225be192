"""BatchRenorm1d, 2d and 3d: drop-in replacements of torch.nn.BatchNorm1d, 2d and 3d."""
import warnings
from typing import Any, Dict, Optional, Set, Tuple

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from . import _tensors
from ._history import Averages, History, Move, in_backward, tells_recomputation
from ._library import has_kernels
from .clip import ClipSchedule

_CHOICES = {
    "grouping": ("contiguous", "strided"),
    "activation": ("none", "relu"),
    "statistics": ("immediate", "deferred"),
}


_warned: Set[str] = set()


def _warn_once(subject: str, text: str) -> None:
    """Warns of each subject once per process."""
    if subject not in _warned:
        _warned.add(subject)
        warnings.warn(text, stacklevel=4)


def _choice(owner: str, option: str, value: Any) -> str:
    if value not in _CHOICES[option]:
        known = " or ".join(repr(name) for name in _CHOICES[option])
        raise ValueError(f"{owner}: {option} must be {known}, got {value!r}")
    return value


def _held_type(dtype: torch.dtype) -> torch.dtype:
    """The dtype of parameters and averages: float32 or wider."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class BatchRenorm(torch.nn.Module):
    """Batch Renormalization (Ioffe, 2017) of input [N, C, ...] of any rank.

    BatchRenorm1d, 2d and 3d are the same for the ranks of BatchNorm1d, 2d and 3d. In training

        x_hat = (x - batch_mean) / batch_std * r + d,    y = weight * x_hat + bias

    where r and d bring the batch's statistics to the moving averages, within limits, and are constants in the backward
    pass. In evaluation the averages normalize.

    Arguments beyond those of BatchNorm:
        scale: False fixes the weight at 1, as in the paper; the bias stays.
        group_size: examples that are normalized together in training; 0 = the whole batch.
        grouping: "contiguous": neighbours form a group; "strided": every k-th example.
        activation: "relu" applies the ReLU in the same pass.
        clip: the limits of r and d by training step. The default is the paper's for 130,000 steps; for a run of N steps
            use ClipSchedule.paper(N).
        statistics: "immediate": every training forward moves the averages. "deferred": it only collects, and
            commit() moves them once, for training steps of several forwards.

    eps, momentum, group_size, grouping, activation, clip and statistics may be changed later. Momentum is the weight of
    the new value, 0.01 by default; None is a cumulative average. Parameters and averages are float32 or float64,
    also after half() and bfloat16().

    >>> _ = torch.manual_seed(0)
    >>> norm = BatchRenorm2d(3, activation="relu", clip=ClipSchedule.paper(20000))
    >>> norm(torch.randn(8, 3, 5, 5)).shape
    torch.Size([8, 3, 5, 5])
    >>> norm.num_batches_tracked
    tensor(1)
    """

    __constants__ = ["num_features", "affine", "scale", "track_running_stats", "_kernels", "_kind", "_ranks", "_shapes"]
    _kind = "BatchRenorm"
    _ranks = (2, 1 << 30)
    _shapes = "[N, C, ...]"

    running_mean: Optional[Tensor]
    running_std: Optional[Tensor]
    num_batches_tracked: Optional[Tensor]
    momentum: Optional[float]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.01,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
        *,
        scale: bool = True,
        group_size: int = 0,
        grouping: str = "contiguous",
        activation: str = "none",
        clip: ClipSchedule = ClipSchedule.paper(),
        statistics: str = "immediate",
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if num_features <= 0:
            raise ValueError(f"{name}: num_features must be > 0, got {num_features}")
        if not eps > 0:
            raise ValueError(f"{name}: eps must be > 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"{name}: momentum must be in [0, 1] or None, got {momentum}")
        if group_size < 0:
            raise ValueError(f"{name}: group_size must be >= 0, got {group_size}")
        if not isinstance(clip, ClipSchedule):
            raise TypeError(f"{name}: clip must be a ClipSchedule such as ClipSchedule.paper(20000), got {clip!r}")
        self.num_features = num_features
        self.eps = float(eps)
        self.momentum = None if momentum is None else float(momentum)
        self.affine = affine
        self.scale = scale
        self.track_running_stats = track_running_stats
        self.group_size = group_size
        self.grouping = _choice(name, "grouping", grouping)
        self.activation = _choice(name, "activation", activation)
        self.clip = clip._checked()
        self.statistics = _choice(name, "statistics", statistics)
        self.batch_statistics = False  # in evaluation: see use_batch_statistics()
        self._kernels = has_kernels

        given = torch.get_default_dtype() if dtype is None else dtype
        if not given.is_floating_point:
            raise TypeError(f"{name}: dtype must be a floating one, got {given}")
        options = {"device": device, "dtype": _held_type(given)}

        def per_channel(wanted: bool) -> Optional[Tensor]:
            return torch.empty(num_features, **options) if wanted else None

        def parameter(wanted: bool) -> Optional[torch.nn.Parameter]:
            return torch.nn.Parameter(torch.empty(num_features, **options)) if wanted else None

        self.register_parameter("weight", parameter(affine and scale))
        self.register_parameter("bias", parameter(affine))
        tracks = track_running_stats
        self.register_buffer("running_mean", per_channel(tracks))
        self.register_buffer("running_std", per_channel(tracks))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.int64, device=device) if tracks else None)
        # Not saved: the sums of the statistics that wait for commit(), and how often the limits clipped.
        waiting = torch.zeros(2, num_features, **options) if tracks else None
        count = torch.zeros((), dtype=torch.int64, device=device) if tracks else None
        self.register_buffer("collected", waiting, persistent=False)
        self.register_buffer("collected_groups", count, persistent=False)
        self.register_buffer("clip_counts", torch.zeros(4, dtype=torch.int64, device=device) if tracks else None,
                             persistent=False)
        self._history = None
        self._process_group = None  # of the DistributedDataParallel that ran the last forward
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Averages 0 and 1, step 0, nothing collected or counted."""
        if self.running_mean is not None:
            self.running_mean.zero_()
            self.running_std.fill_(1)
            self.num_batches_tracked.zero_()
            self.clip_counts.zero_()
            self.discard()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and reset_running_stats()."""
        self.reset_running_stats()
        if self.weight is not None:
            torch.nn.init.ones_(self.weight)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, input: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """activation(norm(input) + residual), in one pass; without a residual activation(norm(input))."""
        if not torch.jit.is_scripting():
            if self._kernels and not _tensors.is_compiling() and self._is_frequent(input):
                self._check_input(input, residual)
                return self._train_in_one_call(input, residual) if self.training else self._infer_in_one_call(input, residual)
        return self._forward(input, residual)

    @torch.jit.unused
    def _is_frequent(self, input: Tensor) -> bool:
        """Whether one call of an operator is the whole forward. A class made by a parametrization or by
        torch.nn.utils.stateless has parameters in other places."""
        return (
            input.is_cpu
            and type(self) in _PLAIN
            and self.statistics == "immediate"
            and not self.batch_statistics
            and self._buffers["running_mean"] is not None
            and DistributedDataParallel._active_ddp_module is None
            and not in_backward()
        )

    @torch.jit.unused
    def _train_in_one_call(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        parameters, buffers = self._parameters, self._buffers
        averages = (buffers["running_mean"], buffers["running_std"], buffers["num_batches_tracked"])
        if tells_recomputation:
            history = self._recorded(averages)
        output, batch_mean, batch_std = torch.ops.renorm.batch_renorm_train_(
            input, parameters["weight"], parameters["bias"], *averages, buffers["clip_counts"], self.momentum, *self.clip,
            self.eps, self.group_size, self.grouping, self.activation, residual
        )
        if tells_recomputation:
            history.after_move(averages, Move(batch_mean, batch_mean, batch_std, self.momentum))
        return output

    @torch.jit.unused
    def _infer_in_one_call(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        parameters, buffers = self._parameters, self._buffers
        mean, std = buffers["running_mean"], buffers["running_std"]
        if torch.onnx.is_in_onnx_export():
            return self._infer_for_onnx(input, residual, mean, std)
        return torch.ops.renorm.batch_renorm_inference(
            input, parameters["weight"], parameters["bias"], mean, std, self.activation, residual
        )

    def _forward(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        self._check_input(input, residual)
        mean, std, step = self.running_mean, self.running_std, self.num_batches_tracked
        if mean is None or std is None or step is None or (self.batch_statistics and not self.training):
            return self._normalize_by_batch(input, residual)
        if not self.training:
            return self._infer(input, residual, mean, std)
        if input.numel() == 0:
            return input.clone()
        if not torch.jit.is_scripting():
            if not _tensors.is_compiling() and in_backward():
                return self._forward_again(input, residual)
        output, batch_mean, batch_std, r, d = self._train(input, residual, mean, std, step)
        if input.is_meta:
            return output
        self._count_clips(batch_mean, batch_std, mean, std, step, r, d)
        if self.statistics == "deferred":
            self._collect(batch_mean, batch_std)
        else:
            self._move(mean, std, step, batch_mean, batch_std)
        return output

    def _train(
        self, input: Tensor, residual: Optional[Tensor], mean: Tensor, std: Tensor, step: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """output, batch_mean, batch_std, r and d. Changes no average."""
        hold, r_max, r_step, d_max, d_step = self.clip
        if self._kernels and (torch.jit.is_scripting() or input.is_cpu):
            output, batch_mean, _, batch_std, r, d, _ = torch.ops.renorm.batch_renorm_step(
                input, self.weight, self.bias, mean, std, step, hold, r_max, r_step, d_max, d_step,
                self.eps, self.group_size, self.grouping, self.activation, residual
            )
            return output, batch_mean, batch_std, r, d
        if torch.jit.is_scripting():
            return _tensors.train_plain(
                input, self.weight, self.bias, mean, std, step, hold, r_max, r_step, d_max, d_step,
                self.eps, self.group_size, self.grouping, self.activation, residual
            )
        self._check_tensors(input, std)
        return _tensors.train(
            input, self.weight, self.bias, mean, std, step, self.clip, self.eps, self.group_size, self.grouping,
            self.activation, residual
        )

    def _normalize_by_batch(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        """Plain batchnorm with the statistics of the batch, in groups only in training."""
        group_size = self.group_size if self.training else 0
        if input.numel() == 0:
            return input.clone()
        if self._kernels and (torch.jit.is_scripting() or input.is_cpu):
            return torch.ops.renorm.batch_renorm(
                input, self.weight, self.bias, None, None, self.eps, 1.0, 0.0, group_size, self.grouping,
                self.activation, residual
            )[0]
        if torch.jit.is_scripting():
            return _tensors.train_plain(
                input, self.weight, self.bias, None, None, None, -1, 1.0, 0, 0.0, 0, self.eps, group_size,
                self.grouping, self.activation, residual
            )[0]
        return _tensors.train(
            input, self.weight, self.bias, None, None, None, ClipSchedule.batch_norm(), self.eps, group_size,
            self.grouping, self.activation, residual
        )[0]

    def _infer(self, input: Tensor, residual: Optional[Tensor], mean: Tensor, std: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            if torch.onnx.is_in_onnx_export():
                return self._infer_for_onnx(input, residual, mean, std)
            if self.statistics == "deferred" and not _tensors.is_compiling():
                self._warn_of_uncommitted()
        if self._kernels and (torch.jit.is_scripting() or input.is_cpu):
            return torch.ops.renorm.batch_renorm_inference(
                input, self.weight, self.bias, mean, std, self.activation, residual
            )
        if not torch.jit.is_scripting():
            if not _tensors.is_compiling():
                _tensors.check_no_tangent(input, self.weight, self.bias, residual)
            self._check_tensors(input, std)
        return _tensors.infer(input, self.weight, self.bias, mean, std, self.activation, residual)

    @torch.jit.unused
    def _infer_for_onnx(self, input: Tensor, residual: Optional[Tensor], mean: Tensor, std: Tensor) -> Tensor:
        """As batchnorm, which ONNX has: BatchNormalization with var = std^2 and no eps."""
        output = torch.nn.functional.batch_norm(input, mean, std * std, self.weight, self.bias, False, 0.0, 0.0)
        output = output if residual is None else output + residual
        return output.relu() if self.activation == "relu" else output

    def _count_clips(
        self, batch_mean: Tensor, batch_std: Tensor, mean: Tensor, std: Tensor, step: Tensor, r: Tensor, d: Tensor
    ) -> None:
        counts = self.clip_counts
        assert counts is not None
        hold, r_max, r_step, d_max, d_step = self.clip
        if self._kernels and (torch.jit.is_scripting() or batch_mean.is_cpu):
            torch.ops.renorm.count_clips_(
                counts, batch_mean, batch_std, mean, std, step, hold, r_max, r_step, d_max, d_step
            )
        else:
            with torch.no_grad():
                _tensors.count_clips_(counts, batch_mean, batch_std, mean, std, r, d)

    def _collect(self, batch_mean: Tensor, batch_std: Tensor) -> None:
        collected, groups = self.collected, self.collected_groups
        assert collected is not None and groups is not None
        with torch.no_grad():
            collected.add_(torch.stack([batch_mean.sum(0), batch_std.sum(0)]))
            groups.add_(batch_mean.shape[0])
        if not torch.jit.is_scripting():
            if not _tensors.is_compiling():
                self._note_process_group()

    def _move(self, mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor) -> None:
        if not torch.jit.is_scripting():
            if not _tensors.is_compiling():
                self._move_eagerly(mean, std, step, batch_mean, batch_std)
                return
        if self._kernels and (torch.jit.is_scripting() or batch_mean.is_cpu):
            torch.ops.renorm.move_averages_(mean, std, step, batch_mean, batch_std, self.momentum)
        else:
            with torch.no_grad():
                _tensors.move_averages_(mean, std, step, batch_mean, batch_std, self.momentum)

    @torch.jit.unused
    def _move_eagerly(self, mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor) -> None:
        """Moves the averages, by the statistics of all ranks inside of DistributedDataParallel, and records the move
        for a recomputation of this forward in the backward pass."""
        own_mean = batch_mean
        if DistributedDataParallel._active_ddp_module is not None:
            self._note_process_group()
            batch_mean, batch_std = _over_ranks(batch_mean, batch_std, self._process_group)
        averages = (mean, std, step)
        history = self._recorded(averages) if tells_recomputation else None
        self._move_now(mean, std, step, batch_mean, batch_std, self.momentum)
        if history is not None:
            history.after_move(averages, Move(own_mean, batch_mean, batch_std, self.momentum))

    @torch.jit.unused
    def _recorded(self, averages: Averages) -> History:
        """The history, ready for the next move."""
        history = self._history
        if history is None:
            history = self._history = History()
        history.before_move(averages)
        return history

    @torch.jit.unused
    def _move_now(
        self, mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor, momentum: Optional[float]
    ) -> None:
        if self._kernels and batch_mean.is_cpu:
            torch.ops.renorm.move_averages_(mean, std, step, batch_mean, batch_std, momentum)
            return
        with torch.no_grad():
            if batch_mean.is_cpu:  # the host need not wait for anything
                self._check_finite(batch_mean, batch_std)
            _tensors.move_averages_(mean, std, step, batch_mean, batch_std, momentum)

    @torch.jit.unused
    def _forward_again(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        """A forward inside of a backward pass: torch.utils.checkpoint computes an earlier one again. It must see the
        averages of the first time, and nothing moves or is counted."""
        mean, std, step = self.running_mean, self.running_std, self.num_batches_tracked
        if self.statistics == "deferred":
            return self._train(input, residual, mean, std, step)[0]
        with torch.no_grad():
            own_mean = self._train(input, residual, mean, std, step)[1]
        first = None if self._history is None else self._history.before(own_mean, self._move_now)
        if first is not None:
            return self._train(input, residual, *first)[0]
        raise RuntimeError(
            f"{self._who()}: a forward is computed again in the backward pass, and its first computation is not among "
            "the layer's latest ones; use `with renorm.deferred(model):` around the training step"
        )

    def _note_process_group(self) -> None:
        ddp = DistributedDataParallel._active_ddp_module
        if ddp is not None:
            self._process_group = ddp.process_group

    def commit(self) -> bool:
        """Deferred statistics: moves the averages once by the mean over all groups collected since the last commit, and
        counts one step. Returns False if nothing was collected. renorm.commit(model) does this for all layers and over
        all ranks."""
        if self.collected_groups is None or self.statistics == "immediate" or self.collected_groups.item() == 0:
            return False
        self._check_collected()
        groups = self.collected_groups.to(self.collected.dtype)
        mean, std = self.collected / groups
        self._commit(mean.unsqueeze(0), std.unsqueeze(0))
        return True

    def _check_collected(self) -> None:
        if not self.collected.isfinite().all():
            collected = self.collected.clone()
            self.discard()
            self._check_finite(collected[:1], collected[1:])

    def _commit(self, batch_mean: Tensor, batch_std: Tensor) -> None:
        self._move_now(
            self.running_mean, self.running_std, self.num_batches_tracked, batch_mean, batch_std, self.momentum
        )
        self.discard()

    def discard(self) -> None:
        """Forgets the statistics collected since the last commit, for a step that is not taken."""
        if self.collected is not None:
            self.collected.zero_()
            self.collected_groups.zero_()
        self._history = None

    def _check_input(self, input: Tensor, residual: Optional[Tensor]) -> None:
        rank = input.dim()
        if rank < self._ranks[0] or rank > self._ranks[1]:
            raise ValueError(f"{self._kind}: input must be {self._shapes}, got {rank} dimension(s)")
        if not input.is_floating_point():
            raise TypeError(f"{self._kind}: input must have a floating dtype, got {input.dtype}")
        if residual is not None and not torch.jit.is_tracing():
            if residual.shape != input.shape or residual.dtype != input.dtype:
                raise ValueError(f"{self._kind}: residual must have the shape and the dtype of the input")
        if self.training or self.batch_statistics:
            self._check_groups(input)

    def _check_groups(self, input: Tensor) -> None:
        batch = input.shape[0]
        examples = batch
        if self.training and self.group_size > 0:
            examples = self.group_size
            if batch % examples != 0:
                raise ValueError(
                    f"{self._kind}: group_size must divide the batch, got group_size {examples} and a batch of {batch}"
                )
        if examples == 1 and input.numel() == batch * self.num_features:
            raise ValueError(
                f"{self._kind}: input must have more than one value per channel and group when it is normalized with its "
                f"own statistics, got shape {input.shape} and group_size {self.group_size}; use a larger batch or "
                "group_size, or eval()"
            )

    @torch.jit.unused
    def _check_tensors(self, input: Tensor, std: Tensor) -> None:
        """The checks of the kernels. Averages on other devices are not read."""
        if torch.jit.is_tracing():
            return
        if input.shape[1] != self.num_features:
            raise RuntimeError(
                f"{self._who()}: input must have {self.num_features} channels in dimension 1, got {input.shape[1]}"
            )
        if self.running_mean.dtype != (torch.float64 if input.dtype == torch.float64 else torch.float32):
            raise RuntimeError(
                f"{self._who()}: a layer of dtype {self.running_mean.dtype} does not take input of dtype {input.dtype}"
            )
        if _tensors.is_compiling() or not std.is_cpu:
            return
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
        return f"renorm.{type(self).__name__}"

    @torch.jit.unused
    def _warn_of_uncommitted(self) -> None:
        groups = self.collected_groups.item() if self.collected_groups.is_cpu else 0
        if groups > 0:
            _warn_once(
                "uncommitted",
                f"{self._who()}: evaluated while deferred statistics of {groups} groups are not in the averages; call "
                "renorm.commit(model) after each training step",
            )

    def train(self, mode: bool = True) -> "BatchRenorm":
        """Sets the mode. A layer that has only ever been batchnorm is probably not what was intended, and warns."""
        if self.training and not mode and self.clip_counts is not None and self.clip.hold >= 0:
            if not self.clip_counts.is_meta and self.clip_counts[0] > 0:
                step = int(self.num_batches_tracked)
                if step <= self.clip.hold + 1:
                    _warn_once(
                        "hold",
                        f"{self._who()}: after {step} training steps this layer has been plain batchnorm so far, because "
                        f"its clip schedule holds until step {self.clip.hold}; for a run of N steps use "
                        "clip=ClipSchedule.paper(N) or renorm.set_clip(model, ...)",
                    )
        return super().train(mode)

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> "BatchRenorm":
        """Keeps parameters and averages float32 or wider."""

        def held(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            if result.is_floating_point() and result.dtype not in (torch.float32, torch.float64):
                return tensor.to(device=result.device, dtype=torch.float32)
            return result

        self._history = None
        return super()._apply(held, *args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.discard()

    def __getstate__(self) -> Dict[str, Any]:
        return dict(self.__dict__, _history=None, _process_group=None)

    def extra_repr(self) -> str:
        text = (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )
        if not self.scale:
            text += ", scale=False"
        if self.group_size > 0:
            text += f", group_size={self.group_size}, grouping={self.grouping!r}"
        if self.activation != "none":
            text += f", activation={self.activation!r}"
        if self.statistics != "immediate":
            text += f", statistics={self.statistics!r}"
        return text + f", clip={tuple(self.clip)}"


def _over_ranks(batch_mean: Tensor, batch_std: Tensor, group: Any) -> Tuple[Tensor, Tensor]:
    """The mean over the groups of all ranks, as the statistics of one group."""
    count = batch_mean.new_full((1,), batch_mean.shape[0])
    sums = torch.cat([batch_mean.detach().sum(0), batch_std.detach().sum(0), count])
    torch.distributed.all_reduce(sums, group=group)
    mean, std = (sums[:-1] / sums[-1]).reshape(2, 1, -1)
    return mean, std


class BatchRenorm1d(BatchRenorm):
    """Batch Renormalization of input [N, C] or [N, C, L]. BatchRenorm has the arguments.

    >>> BatchRenorm1d(64)(torch.randn(8, 64)).shape
    torch.Size([8, 64])
    """

    _kind = "BatchRenorm1d"
    _ranks = (2, 3)
    _shapes = "[N, C] or [N, C, L]"


class BatchRenorm2d(BatchRenorm):
    """Batch Renormalization of input [N, C, H, W]. BatchRenorm has the arguments.

    >>> BatchRenorm2d(16)(torch.randn(4, 16, 7, 7), residual=torch.randn(4, 16, 7, 7)).shape
    torch.Size([4, 16, 7, 7])
    """

    _kind = "BatchRenorm2d"
    _ranks = (4, 4)
    _shapes = "[N, C, H, W]"


class BatchRenorm3d(BatchRenorm):
    """Batch Renormalization of input [N, C, D, H, W]. BatchRenorm has the arguments.

    >>> BatchRenorm3d(8)(torch.randn(2, 8, 3, 5, 5)).shape
    torch.Size([2, 8, 3, 5, 5])
    """

    _kind = "BatchRenorm3d"
    _ranks = (5, 5)
    _shapes = "[N, C, D, H, W]"


# The classes whose parameters and buffers are certainly where torch.nn.Module keeps them.
_PLAIN = frozenset([BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d])
