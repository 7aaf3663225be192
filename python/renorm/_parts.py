"""The operators for a batch that is divided among processes in tensor operations: for devices other than the CPU, and
where there is no compiled library. Names, arguments and results are those of torch.ops.renorm.batch_renorm_*.
"""
from typing import List, Optional, Tuple

import torch
from torch import Tensor

from . import _tensors
from ._tensors import _like_batch, _like_channels, _wide, correction, finish


def _all_but_channels(x: Tensor) -> List[int]:
    return [0] + list(range(2, x.dim()))


def _sum(x: Tensor) -> Tensor:
    return x.sum(_all_but_channels(x), dtype=_tensors.widest(x.device))


def _spread(statistic: Optional[Tensor], x: Tensor) -> Optional[Tensor]:
    return None if statistic is None else _like_batch(statistic.to(x.dtype), x, 0, "contiguous")


def batch_renorm_statistics(input: Tensor) -> Tensor:
    """The number of values per channel, their means, and the sums of squared distances from the means."""
    channels = input.shape[1]
    if input.numel() == 0:
        return input.new_zeros(2 * channels + 1, dtype=_tensors.widest(input.device))
    x = _wide(input)
    count = input.numel() // channels
    # The second pass removes the rounding error of the first mean.
    rough_mean = (_sum(x) / count).to(x.dtype)
    near = x - _like_channels(rough_mean, x)
    rest = _sum(near) / count
    m2 = (_sum(near.square()) - rest.square() * count).clamp(min=0)
    return torch.cat([rest.new_full((1,), count), rough_mean.to(rest.dtype) + rest, m2])


def batch_renorm_merge(
    statistics: Tensor, running_mean: Optional[Tensor], running_std: Optional[Tensor], step: Optional[Tensor], hold: int,
    r_max: float, r_step: int, d_max: float, d_step: int, eps: float, dtype: torch.dtype
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """batch_mean, batch_mean_low, batch_std, r and d of all processes, and the number of values. Chan's formula, for any
    number of parts at once."""
    channels = statistics.shape[1] // 2
    counts, means, m2s = statistics.split([1, channels, channels], 1)
    count = counts.sum()
    rough_mean = (counts * means).sum(0, keepdim=True) / count
    mean = rough_mean + (counts * (means - rough_mean)).sum(0, keepdim=True) / count
    m2 = (m2s + counts * (means - mean).square()).sum(0, keepdim=True)
    batch_mean = mean.to(dtype)
    low = (mean - batch_mean.to(mean.dtype)).to(dtype)
    batch_std = (m2 / count + eps).to(dtype).sqrt()
    if running_mean is None or running_std is None or step is None:
        return batch_mean, low, batch_std, torch.ones_like(batch_std), torch.zeros_like(batch_std), count
    r, d = correction(batch_mean, batch_std, running_mean, running_std, step, hold, r_max, r_step, d_max, d_step)
    return batch_mean, low, batch_std, r, d, count


def _normalized(input: Tensor, group: Tuple[Optional[Tensor], ...]) -> Tuple[Tensor, Tensor]:
    """input - mean, and x_hat."""
    x = _wide(input)
    mean, low, std, r, d = [_spread(statistic, x) for statistic in group]
    centred = (x - mean) if low is None else (x - mean) - low
    x_hat = centred / std
    x_hat = x_hat if r is None else x_hat * r
    return centred, x_hat if d is None else x_hat + d


def batch_renorm_apply(
    input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], batch_mean: Tensor, batch_mean_low: Optional[Tensor],
    batch_std: Tensor, r: Optional[Tensor], d: Optional[Tensor], activation: str = "none"
) -> Tensor:
    _, x_hat = _normalized(input, (batch_mean, batch_mean_low, batch_std, r, d))
    return finish(x_hat, weight, bias, None, activation, input.dtype)


def _passed(
    grad_output: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], x_hat: Tensor, activation: str
) -> Tensor:
    """grad_output after the backward pass of the activation."""
    g = _wide(grad_output)
    if activation == "none":
        return g
    return g.masked_fill(finish(x_hat, weight, bias, None, "none", x_hat.dtype) <= 0, 0)


def batch_renorm_backward_sums(
    grad_output: Tensor, input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], batch_mean: Tensor,
    batch_mean_low: Optional[Tensor], batch_std: Tensor, r: Optional[Tensor], d: Optional[Tensor],
    activation: str = "none"
) -> Tensor:
    """[2, channels]: the sums of g and of g * (input - mean)."""
    centred, x_hat = _normalized(input, (batch_mean, batch_mean_low, batch_std, r, d))
    g = _passed(grad_output, weight, bias, x_hat, activation)
    return torch.stack([_sum(g), _sum(g * centred)])


def batch_renorm_backward_apply(
    grad_output: Tensor, input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], batch_mean: Tensor,
    batch_mean_low: Optional[Tensor], batch_std: Tensor, r: Optional[Tensor], d: Optional[Tensor], sums: Tensor,
    count: Tensor, activation: str = "none"
) -> Tensor:
    """The gradient of the input from the sums over all processes."""
    centred, x_hat = _normalized(input, (batch_mean, batch_mean_low, batch_std, r, d))
    g = _passed(grad_output, weight, bias, x_hat, activation)
    level, slope = sums / count
    slope = slope / batch_std.to(slope.dtype).square()
    scale = (1 if r is None else r) / batch_std
    scale = scale if weight is None else scale * weight
    gradient = g - _like_channels(level.to(g.dtype), g) - centred * _spread(slope, g)
    return (gradient * _spread(scale, g)).to(input.dtype)
