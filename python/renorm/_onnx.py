"""Inference in ONNX: BatchNormalization with var = std^2 and no eps."""
from typing import Any, Optional

import torch
from torch import Tensor

from ._library import has_kernels


def infer(
    input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], running_mean: Tensor, running_std: Tensor,
    activation: str, residual: Optional[Tensor]
) -> Tensor:
    """Inference as batchnorm, for a module that the exporter traces."""
    var = running_std * running_std
    output = torch.nn.functional.batch_norm(input, running_mean, var, weight, bias, False, 0.0, 0.0)
    output = output if residual is None else output + residual
    return output.relu() if activation == "relu" else output


def _is_absent(value: Any) -> bool:
    return value.node().mustBeNone()


def _symbolic(
    g: Any, input: Any, weight: Any, bias: Any, running_mean: Any, running_std: Any, activation: Any, residual: Any
) -> Any:
    """The nodes of the operator, for a scripted or traced module, which calls it."""
    # BatchNormalization requires both. The averages have the number of channels.
    weight = g.op("Div", running_std, running_std) if _is_absent(weight) else weight
    bias = g.op("Sub", running_mean, running_mean) if _is_absent(bias) else bias
    var = g.op("Mul", running_std, running_std)
    output = g.op("BatchNormalization", input, weight, bias, running_mean, var, epsilon_f=0.0)
    output = output if _is_absent(residual) else g.op("Add", output, residual)
    return g.op("Relu", output) if activation.node().s("value") == "relu" else output


if has_kernels:
    torch.onnx.register_custom_op_symbolic("renorm::batch_renorm_inference", _symbolic, 9)
