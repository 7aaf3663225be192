"""The frequent forward: one call of an operator, with everything looked up where torch.nn.Module keeps it.

A layer on a small tensor takes longer in Python than in the kernels.
"""
from typing import Optional, Set

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel as _DDP

from . import _onnx, _tensors
from ._averages import Averaged
from ._history import backward_task, recognises_recomputation
from ._library import has_kernels

if has_kernels:
    _batch_renorm_train = torch.ops.renorm.batch_renorm_train_.default
    _batch_renorm_inference = torch.ops.renorm.batch_renorm_inference.default

# The classes whose parameters and buffers are certainly where torch.nn.Module keeps them.
PLAIN: Set[type] = set()


class OneCall(Averaged):
    """The base of BatchRenorm, which has the options."""

    @torch.jit.unused
    def _is_frequent(self, input: Tensor) -> bool:
        """Whether one call of an operator is the whole forward, with the parameters where torch.nn.Module keeps them. A
        class made by a parametrization or by torch.nn.utils.stateless has them elsewhere."""
        return (
            type(self) in PLAIN
            and type(input) is Tensor  # subclasses may have no data, such as FakeTensor
            and "weight" in self._parameters  # not with torch.nn.utils.weight_norm
            and "bias" in self._parameters
            and input.is_cpu
            and self.statistics == "immediate"
            and not self.batch_statistics
            and self._buffers["running_mean"] is not None
            and _DDP._active_ddp_module is None
            and backward_task() == -1
            and not _tensors.in_transform()
        )

    @torch.jit.unused
    def _train_in_one_call(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        parameters, buffers = self._parameters, self._buffers
        try:
            output, record = _batch_renorm_train(
                input, parameters["weight"], parameters["bias"], buffers["running_mean"], buffers["running_std"],
                buffers["num_batches_tracked"], buffers["clip_counts"], self.momentum, *self.clip, self.eps,
                self.group_size, self.grouping, self.activation, residual, recognises_recomputation
            )
        except RuntimeError as error:
            raise self._explained(error, input) from None
        if recognises_recomputation and input.numel() > 0:
            self._record((record, None))
        return output

    @torch.jit.unused
    def _infer_in_one_call(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        parameters, buffers = self._parameters, self._buffers
        mean, std = buffers["running_mean"], buffers["running_std"]
        if torch.onnx.is_in_onnx_export():
            return _onnx.infer(input, self.weight, self.bias, mean, std, self.activation, residual)
        try:
            return _batch_renorm_inference(
                input, parameters["weight"], parameters["bias"], mean, std, self.activation, residual
            )
        except RuntimeError as error:
            raise self._explained(error, input) from None
