"""BatchRenorm1d, 2d and 3d: drop-in replacements of torch.nn.BatchNorm1d, 2d and 3d."""
from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from . import _onnx, _tensors
from ._averages import inside_ddp
from ._checks import OPTIONS, checked_option
from ._history import in_backward
from ._library import has_kernels
from ._one_call import PLAIN, OneCall
from .clip import ClipSchedule, whole_number

def held_type(dtype: torch.dtype) -> torch.dtype:
    """The dtype of parameters and averages: float32 or wider."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class BatchRenorm(OneCall):
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

    __constants__ = [
        "num_features", "affine", "scale", "track_running_stats", "_kernels", "_kind", "_ranks", "_shapes", "_sync"
    ]
    _kind = "BatchRenorm"
    _ranks = (2, 1 << 30)
    _shapes = "[N, C, ...]"
    _sync = False  # True: several processes form one normalization group in training

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
        num_features = whole_number(f"{name}: num_features", num_features, 1)
        self.num_features = num_features
        self.affine = affine
        self.scale = scale
        self.track_running_stats = track_running_stats
        self.eps = eps
        self.momentum = momentum
        self.group_size = group_size
        self.grouping = grouping
        self.activation = activation
        self.clip = clip
        self.statistics = statistics
        self.batch_statistics = False  # in evaluation: see use_batch_statistics()
        self.name = ""  # in errors; convert() and name_layers() set it to the path
        self._kernels = has_kernels
        self._history = None
        self._defers = False  # inside deferred()

        given = torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(given, torch.dtype) or not given.is_floating_point:
            raise TypeError(f"{name}: dtype must be a floating torch.dtype, got {given!r:.60}")
        options = {"device": device, "dtype": held_type(given)}

        def per_channel(wanted: bool) -> Optional[Tensor]:
            return torch.empty(num_features, **options) if wanted else None

        def parameter(wanted: bool) -> Optional[torch.nn.Parameter]:
            return torch.nn.Parameter(torch.empty(num_features, **options)) if wanted else None

        self.register_parameter("weight", parameter(affine and scale))
        self.register_parameter("bias", parameter(affine))
        tracks = track_running_stats
        self.register_buffer("running_mean", per_channel(tracks))
        self.register_buffer("running_std", per_channel(tracks))

        def integers(*shape: int) -> Optional[Tensor]:
            return torch.zeros(shape, dtype=torch.int64, device=device) if tracks else None

        self.register_buffer("num_batches_tracked", integers())
        # Not saved: the sums of the statistics that wait for commit(), and how often the limits clipped.
        waiting = torch.zeros(2, num_features, **options) if tracks else None
        self.register_buffer("collected", waiting, persistent=False)
        self.register_buffer("collected_groups", integers(), persistent=False)
        self.register_buffer("clip_counts", integers(4), persistent=False)
        self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        """Checks an option, also one that is changed later."""
        if name in OPTIONS:
            value = checked_option(type(self).__name__, name, value)
            if name == "statistics" and value == "immediate" and "collected" in self._buffers:
                self.discard()
        super().__setattr__(name, value)

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
    def _is_divided(self) -> bool:
        """Whether other processes have a part of the normalization group."""
        return False

    @torch.jit.unused
    def _train_on_share(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        """A training forward of a divided group."""
        raise NotImplementedError

    def _forward(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        if self._sync and self.training:
            if torch.jit.is_scripting():
                raise RuntimeError("SyncBatchRenorm: TorchScript can only evaluate it")
            elif self._is_divided() and not input.is_meta:
                return self._train_on_share(input, residual)
        self._check_input(input, residual)
        self._check_fit(input)
        mean, std, step = self.running_mean, self.running_std, self.num_batches_tracked
        if mean is None or std is None or step is None or (self.batch_statistics and not self.training):
            return self._normalize_by_batch(input, residual)
        if not self.training:
            return self._infer(input, residual, mean, std)
        if not torch.jit.is_scripting():
            if not _tensors.is_compiling():
                return self._train_eagerly(input, residual)
        if input.numel() == 0:
            return input.clone()
        output, batch_mean, batch_std, r, d = self._train(input, residual, mean, std, step)
        if input.is_meta:
            return output
        self._count_clips(batch_mean, batch_std, mean, std, step, r, d)
        if self.statistics == "deferred":
            self._collect(batch_mean, batch_std)
        else:
            self._move(mean, std, step, batch_mean, batch_std)
        return output

    @torch.jit.unused
    def _train_eagerly(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        averages = (self.running_mean, self.running_std, self.num_batches_tracked)
        if input.numel() == 0:
            if inside_ddp():
                none = self.running_mean.new_empty((0, self.num_features))
                self._end_eagerly(*averages, none, none, none, none)
            return input.clone()
        if in_backward() and self._history:
            return self._forward_again(input, residual)
        output, batch_mean, batch_std, r, d = self._train(input, residual, *averages)
        if not input.is_meta:
            self._end_eagerly(*averages, batch_mean, batch_std, r, d)
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
        self._check_averages(mean, std)
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
                return _onnx.infer(input, self.weight, self.bias, mean, std, self.activation, residual)
            if self.statistics == "deferred" and not _tensors.is_compiling():
                self._warn_of_uncommitted()
        if self._kernels and (torch.jit.is_scripting() or input.is_cpu):
            return torch.ops.renorm.batch_renorm_inference(
                input, self.weight, self.bias, mean, std, self.activation, residual
            )
        if not torch.jit.is_scripting():
            if not _tensors.is_compiling():
                _tensors.check_no_tangent(input, self.weight, self.bias, residual)
            self._check_averages(mean, std)
        return _tensors.infer(input, self.weight, self.bias, mean, std, self.activation, residual)

    def train(self, mode: bool = True) -> "BatchRenorm":
        """Sets the mode. A layer that leaves training before the hold of the default schedule ended warns once: the
        schedule is probably too long for the run."""
        if self.training and not mode and self.clip == ClipSchedule.paper():
            self._warn_of_hold()
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

    def _replicate_for_data_parallel(self) -> "BatchRenorm":
        replica = super()._replicate_for_data_parallel()
        replica._history = None
        return replica

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._forget()

    def _forget(self) -> None:
        """Nothing collected or counted. Loading with assign=True may have left these buffers on another device."""
        if self.running_mean is None:
            return
        for name in ("collected", "collected_groups", "clip_counts"):
            buffer = self._buffers[name]
            dtype = self.running_mean.dtype if buffer.is_floating_point() else buffer.dtype
            if buffer.device != self.running_mean.device or buffer.dtype != dtype:
                self._buffers[name] = torch.empty(buffer.shape, dtype=dtype, device=self.running_mean.device)
            self._buffers[name].zero_()

    def __getstate__(self) -> Dict[str, Any]:
        """A copy has nothing collected and no records."""
        buffers = dict(self._buffers)
        for name in ("collected", "collected_groups"):
            if buffers[name] is not None:
                buffers[name] = torch.zeros_like(buffers[name])
        return dict(self.__dict__, _buffers=buffers, _history=None)

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


PLAIN.update([BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d])
