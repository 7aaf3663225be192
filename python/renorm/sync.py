"""SyncBatchRenorm: one normalization group over all processes of a process group."""
from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from . import _parts, _tensors
from ._averages import all_reduce, inside_ddp
from ._history import in_backward
from ._library import has_kernels
from ._one_call import PLAIN
from .modules import BatchRenorm, held_type


class _Processes:
    """The process group of a layer. A deep copy of the layer keeps it; a pickle cannot, and has the default group."""

    def __init__(self, group: Any = None) -> None:
        self.group = group

    def __deepcopy__(self, memo: Any) -> "_Processes":
        return self

    def __reduce__(self) -> Tuple[Any, ...]:
        return _Processes, ()

    def count(self) -> int:
        """1 without a process group; negative in a process that is not in it."""
        distributed = torch.distributed
        if not distributed.is_available() or not distributed.is_initialized():
            return 1
        return distributed.get_world_size(self.group)

    def rank(self) -> int:
        return torch.distributed.get_rank(self.group)


def _operators(input: Tensor) -> Any:
    return torch.ops.renorm if has_kernels and input.is_cpu else _parts


class _Share(torch.autograd.Function):
    """activation(weight * x_hat + bias) of this process' share. The gradients of weight and bias are those of the share,
    which DistributedDataParallel or the training loop adds up."""

    @staticmethod
    def forward(ctx, input, weight, bias, group, count, activation, processes, who):
        ctx.save_for_backward(input, weight, bias, *group, count)
        ctx.activation, ctx.processes, ctx.who = activation, processes, who
        return _operators(input).batch_renorm_apply(input, weight, bias, *group, activation)

    @staticmethod
    def backward(ctx, grad_output):
        if torch.is_grad_enabled():
            raise RuntimeError(f"{ctx.who}: create_graph is not supported with statistics over several processes")
        input, weight, bias, *group, count = ctx.saved_tensors
        _, _, std, r, d = group
        wants_input, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        operators = _operators(input)
        sums = operators.batch_renorm_backward_sums(grad_output, input, weight, bias, *group, ctx.activation)
        dinput = dweight = dbias = None
        if wants_weight:
            dweight = (r[0].to(sums.dtype) / std[0] * sums[1] + d[0] * sums[0]).to(weight.dtype)
        if wants_bias:
            dbias = sums[0].to(bias.dtype, copy=True)
        if wants_input:
            all_reduce(sums, ctx.processes.group)
            dinput = operators.batch_renorm_backward_apply(
                grad_output, input, weight, bias, *group, sums, count, ctx.activation
            )
        return dinput, dweight, dbias, None, None, None, None, None


# torch.compile leaves collectives and the statistics between them to eager mode.
if hasattr(torch, "compiler") and hasattr(torch.compiler, "disable"):
    _eager = torch.compiler.disable
else:

    def _eager(function: Any) -> Any:
        return function


class SyncBatchRenorm(BatchRenorm):
    """Batch Renormalization of input [N, C, ...] of any rank, in training with the statistics of the batches of all
    processes, each weighted by its number of values. A batch may be empty.

    Output, gradients and averages are those of one process with the whole batch. The averages are equal in all
    processes. Every process of the group runs the same training forwards and backwards in the same order: a forward is
    one all-reduce, and so is a backward that has a gradient of the input. In evaluation, and without an initialized
    process group, it is BatchRenorm.

    Arguments beyond those of BatchRenorm:
        process_group: the processes that share their statistics; None is all of them.

    group_size must be 0. renorm.convert_sync makes these layers from those of a model.

    >>> SyncBatchRenorm(16)(torch.randn(4, 16, 7, 7)).shape
    torch.Size([4, 16, 7, 7])
    """

    __jit_unused_properties__ = ["process_group"]
    _kind = "SyncBatchRenorm"
    _sync = True

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.01,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
        **options: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, **options)
        self._processes = _Processes(process_group)
        self._unsynchronized = SyncBatchRenorm  # the class before convert_sync()

    @property
    def process_group(self) -> Any:
        return self._processes.group

    @process_group.setter
    def process_group(self, group: Any) -> None:
        self._processes = _Processes(group)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "group_size" and self.group_size != 0:
            self.group_size = 0
            raise ValueError(f"{type(self).__name__}: group_size must be 0, got {value}")

    @torch.jit.unused
    def _is_divided(self) -> bool:
        return self._processes.count() > 1

    @torch.jit.unused
    def _is_frequent(self, input: Tensor) -> bool:
        return not (self.training and self._is_divided()) and super()._is_frequent(input)

    @torch.jit.unused
    def _moves_by_all_ranks(self) -> bool:
        """Statistics of all ranks of DistributedDataParallel are those of this layer, unless its group is another one."""
        if not inside_ddp():
            return False
        group = DistributedDataParallel._active_ddp_module.process_group
        return not self._is_divided() or self._processes.count() != torch.distributed.get_world_size(group)

    @_eager
    def _train_on_share(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        self._check_shape(input, residual)
        averages = (self.running_mean, self.running_std, self.num_batches_tracked)
        tracks = averages[0] is not None
        if tracks and in_backward() and self._history:
            return self._forward_again(input, residual)
        output, batch_mean, batch_std, r, d, count = self._normalize_share(input, residual, *averages)
        # Other devices are not read.
        values = count.item() if count.is_cpu else 2
        if values == 1:
            raise ValueError(
                f"{self._called()}: the batches of all processes must have more than one value per channel together, "
                "got one"
            )
        if values == 0:
            batch_mean, batch_std, r, d = batch_mean[:0], batch_std[:0], r[:0], d[:0]
        if tracks:
            self._end_eagerly(*averages, batch_mean, batch_std, r, d)
        return output

    @torch.jit.unused
    def _train(
        self, input: Tensor, residual: Optional[Tensor], mean: Tensor, std: Tensor, step: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        if self._is_divided():
            return self._normalize_share(input, residual, mean, std, step)[:5]
        return super()._train(input, residual, mean, std, step)

    @torch.jit.unused
    def _normalize_share(
        self, input: Tensor, residual: Optional[Tensor], mean: Optional[Tensor], std: Optional[Tensor],
        step: Optional[Tensor]
    ) -> Tuple[Tensor, ...]:
        """output, batch_mean, batch_std, r, d and the number of values in all processes. Changes no average."""
        self._check_fit(input)
        if std is not None:
            self._check_averages(mean, std)
        operators = _operators(input)
        try:
            own = operators.batch_renorm_statistics(input.detach())
            rows = own.new_zeros(self._processes.count(), len(own))
            rows[self._processes.rank()] = own
            all_reduce(rows, self._processes.group)
            *group, count = operators.batch_renorm_merge(
                rows, mean, std, step, *self.clip, self.eps, held_type(input.dtype)
            )
            activation = self.activation if residual is None else "none"
            output = _Share.apply(
                input, self.weight, self.bias, tuple(group), count, activation, self._processes, self._who()
            )
        except RuntimeError as error:
            raise self._explained(error, input) from None
        if residual is not None:
            output = output + residual
            output = output.relu() if self.activation == "relu" else output
        batch_mean, _, batch_std, r, d = group
        return output, batch_mean, batch_std, r, d, count


PLAIN.add(SyncBatchRenorm)
