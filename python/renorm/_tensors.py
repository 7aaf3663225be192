"""Batch Renorm in tensor operations: for devices other than the CPU, and where there is no compiled library.

r and d are constants in the backward pass, so the gradient is written out: the six formulas of the paper. Statistics
have the shape [groups, channels].
"""
from typing import List, Optional, Tuple

import torch
from torch import Tensor


def widest(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices that do not have it."""
    return torch.float32 if device.type == "mps" else torch.float64


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def _grouped(x: Tensor, group_size: int, grouping: str) -> Tensor:
    """[groups, examples per group, channels, ...], a view in any memory format."""
    if group_size == 0:
        return x.unsqueeze(0)
    if grouping == "strided":
        return x.unflatten(0, [group_size, x.shape[0] // group_size]).transpose(0, 1)
    return x.unflatten(0, [x.shape[0] // group_size, group_size])


def _group_dims(x: Tensor) -> List[int]:
    """The dimensions of a grouped batch that statistics are taken over."""
    dims = [1]
    for i in range(3, x.dim()):
        dims.append(i)
    return dims


def _group_mean(x: Tensor, group_size: int, grouping: str) -> Tensor:
    """[groups, channels]"""
    grouped = _grouped(x, group_size, grouping)
    return grouped.mean(_group_dims(grouped))


def _like_batch(statistic: Tensor, x: Tensor, group_size: int, grouping: str) -> Tensor:
    """[groups, channels] in the rank of the batch `x`, for each example the row of its group."""
    if group_size > 0:
        groups, channels = statistic.shape[0], statistic.shape[1]
        if grouping == "strided":
            rows = statistic.unsqueeze(0).expand(group_size, groups, channels)
        else:
            rows = statistic.unsqueeze(1).expand(groups, group_size, channels)
        statistic = rows.reshape(groups * group_size, channels)
    for _ in range(2, x.dim()):
        statistic = statistic.unsqueeze(-1)
    return statistic


def _like_channels(parameter: Tensor, x: Tensor) -> Tensor:
    """[channels] in the rank of the batch `x`."""
    return _like_batch(parameter.unsqueeze(0), x, 0, "contiguous")


def _limit(step: Tensor, hold: int, start: float, end: float, last: int) -> Tensor:
    between = (step - hold) / float(max(last - hold, 1)) * (end - start) + start
    ends = torch.where(step >= last, torch.full_like(step, end), between)
    return torch.where(step <= hold, torch.full_like(step, start), ends)


def correction(
    batch_mean: Tensor, batch_std: Tensor, running_mean: Tensor, running_std: Tensor, step: Tensor,
    hold: int, r_max: float, r_step: int, d_max: float, d_step: int
) -> Tuple[Tensor, Tensor]:
    """r and d within the limits at `step`. The host does not wait for the device."""
    r = batch_std / running_std
    d = (batch_mean - running_mean) / running_std
    if hold < 0:
        return r.clamp(1.0 / r_max, r_max), d.clamp(-d_max, d_max)
    at = step.to(r.dtype)
    high = _limit(at, hold, 1.0, r_max, r_step)
    wide = _limit(at, hold, 0.0, d_max, d_step)
    return torch.clamp(r, high.reciprocal(), high), torch.clamp(d, -wide, wide)


# To torch.compile r and d are the results of an operator of their own. In plain operations the compiled backward pass
# would compute them again from the averages, which have moved by then.
if hasattr(torch, "compile"):
    _definitions = torch.library.Library("renorm_tensors", "DEF")
    _definitions.define(
        "correction(Tensor batch_mean, Tensor batch_std, Tensor running_mean, Tensor running_std, Tensor step, int hold, "
        "float r_max, int r_step, float d_max, int d_step) -> (Tensor, Tensor)"
    )
    _definitions.impl("correction", correction, "CompositeExplicitAutograd")


def statistics(x: Tensor, eps: float, group_size: int, grouping: str) -> Tuple[Tensor, Tensor]:
    """batch_mean and batch_std of a batch."""
    grouped = _grouped(x, group_size, grouping)
    var, mean = torch.var_mean(grouped, _group_dims(grouped), unbiased=False)
    return mean, (var + eps).sqrt()


def finish(
    x_hat: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], residual: Optional[Tensor], activation: str,
    dtype: torch.dtype
) -> Tensor:
    """activation(weight * x_hat + bias + residual)"""
    if weight is not None:
        x_hat = x_hat * _like_channels(weight, x_hat)
    if bias is not None:
        x_hat = x_hat + _like_channels(bias, x_hat)
    if residual is not None:
        x_hat = x_hat + _wide(residual)
    if activation == "relu":
        x_hat = x_hat.relu()
    return x_hat.to(dtype)


def train_plain(
    input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], running_mean: Optional[Tensor],
    running_std: Optional[Tensor], step: Optional[Tensor], hold: int, r_max: float, r_step: int, d_max: float,
    d_step: int, eps: float, group_size: int, grouping: str, activation: str, residual: Optional[Tensor]
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """output, batch_mean, batch_std, r and d. Autograd differentiates the operations. Without averages r is 1 and d 0."""
    x = _wide(input)
    batch_mean, batch_std = statistics(x, eps, group_size, grouping)
    mean, std = batch_mean.detach(), batch_std.detach()
    if running_mean is not None and running_std is not None and step is not None:
        if torch.jit.is_scripting() or not is_compiling():
            r, d = correction(mean, std, running_mean, running_std, step, hold, r_max, r_step, d_max, d_step)
        else:
            r, d = torch.ops.renorm_tensors.correction(
                mean, std, running_mean, running_std, step, hold, r_max, r_step, d_max, d_step
            )
    else:
        r, d = torch.ones_like(std), torch.zeros_like(mean)
    centred = x - _like_batch(batch_mean, x, group_size, grouping)
    x_hat = centred * _like_batch(r / batch_std, x, group_size, grouping) + _like_batch(d, x, group_size, grouping)
    return finish(x_hat, weight, bias, residual, activation, input.dtype), mean, std, r, d


def is_compiling() -> bool:
    return False


if hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling"):
    is_compiling = torch.compiler.is_compiling  # noqa: F811


class _Train(torch.autograd.Function):
    """train_plain with the gradient of the paper, r and d constant."""

    @staticmethod
    def forward(ctx, input, weight, bias, residual, running_mean, running_std, step, clip, eps, layout, activation):
        output, mean, std, r, d = train_plain(
            input, weight, bias, running_mean, running_std, step, *clip, eps, *layout, activation, residual
        )
        # Not the output, which may be changed in place.
        ctx.save_for_backward(input, weight, mean, std, r, d, output > 0 if activation == "relu" else None)
        ctx.eps, ctx.layout = eps, layout
        ctx.mark_non_differentiable(mean, std, r, d)
        return output, mean, std, r, d

    @staticmethod
    def backward(ctx, grad_output, *_):
        input, weight, mean, std, r, d, mask = ctx.saved_tensors
        wants_input, wants_weight, wants_bias, wants_residual = ctx.needs_input_grad[:4]
        grad = grad_output if mask is None else grad_output * mask
        x, g = _wide(input), _wide(grad)
        if torch.is_grad_enabled():  # the gradient itself is differentiated, through the statistics too
            mean, std = statistics(x, ctx.eps, *ctx.layout)

        def spread(statistic: Tensor) -> Tensor:
            return _like_batch(statistic, x, *ctx.layout)

        normalized = (x - spread(mean)) / spread(std)
        dinput = dweight = dbias = None
        if wants_input:
            dx_hat = g if weight is None else g * _like_channels(weight, g)
            # d(loss)/d(batch_std) and d(loss)/d(batch_mean) of the paper, per value of the group.
            along = spread(_group_mean(dx_hat * normalized, *ctx.layout))
            level = spread(_group_mean(dx_hat, *ctx.layout))
            dinput = (spread(r / std) * (dx_hat - level - normalized * along)).to(input.dtype)
        all_but_channels = [0] + list(range(2, x.dim()))
        if wants_weight:
            dweight = (g * (normalized * spread(r) + spread(d))).sum(all_but_channels)
        if wants_bias:
            dbias = g.sum(all_but_channels)
        return dinput, dweight, dbias, grad if wants_residual else None, None, None, None, None, None, None, None


if hasattr(torch._C, "_are_functorch_transforms_active"):
    in_transform = torch._C._are_functorch_transforms_active
    is_batched = torch._C._functorch.is_batchedtensor
else:

    def in_transform() -> bool:
        """Whether a transform of torch.func is running."""
        return False

    def is_batched(tensor: Tensor) -> bool:
        """Whether vmap has added a dimension to the tensor."""
        return False


def _has_tangent(*tensors: Optional[Tensor]) -> bool:
    if torch.autograd.forward_ad._current_level < 0:
        return False
    return any(t is not None and torch.autograd.forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def check_no_tangent(*tensors: Optional[Tensor]) -> None:
    if _has_tangent(*tensors):
        raise NotImplementedError("renorm: forward-mode differentiation is not supported; use reverse mode")


# torch.func follows the plain operations.
def train(
    input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], running_mean: Optional[Tensor],
    running_std: Optional[Tensor], step: Optional[Tensor], clip: Tuple[int, float, int, float, int], eps: float,
    group_size: int, grouping: str, activation: str, residual: Optional[Tensor]
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """output, batch_mean, batch_std, r and d of a training batch that is not empty."""
    if is_compiling() or not in_transform():
        if not is_compiling():
            check_no_tangent(input, weight, bias, residual)
        return _Train.apply(
            input, weight, bias, residual, running_mean, running_std, step, tuple(clip), eps, (group_size, grouping),
            activation
        )
    check_no_tangent(input, weight, bias, residual)
    return train_plain(
        input, weight, bias, running_mean, running_std, step, *clip, eps, group_size, grouping, activation, residual
    )


def infer(
    input: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], running_mean: Tensor, running_std: Tensor,
    activation: str, residual: Optional[Tensor]
) -> Tensor:
    """activation(weight * (input - running_mean) / running_std + bias + residual)"""
    # Copies: the averages change in place, and a later backward pass uses their present values.
    mean, std = running_mean.detach().clone(), running_std.detach().clone()
    x = _wide(input)
    x_hat = (x - _like_channels(mean, x)) / _like_channels(std, x)
    return finish(x_hat, weight, bias, residual, activation, input.dtype)


def move_averages_(
    running_mean: Tensor, running_std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor,
    momentum: Optional[float]
) -> None:
    """As renorm::move_averages_ on devices other than the CPU: statistics that are not finite change nothing."""
    finite = batch_mean.isfinite().all().logical_and(batch_std.isfinite().all())
    if momentum is None:
        weight = (step + 1).to(running_mean.dtype).reciprocal()
    else:
        weight = torch.full_like(running_mean, momentum)
    for running, batch in ((running_mean, batch_mean), (running_std, batch_std)):
        moved = running + weight * (batch.mean(0) - running)
        running.copy_(torch.where(finite, moved, running))
    step.add_(finite.to(torch.int64))


def count_clips_(
    counts: Tensor, batch_mean: Tensor, batch_std: Tensor, running_mean: Tensor, running_std: Tensor, r: Tensor,
    d: Tensor
) -> None:
    """Adds to counts the values, the r clipped above and below, and the d clipped; nothing if they are not finite."""
    raw_r = batch_std / running_std
    raw_d = (batch_mean - running_mean) / running_std
    finite = raw_r.isfinite().all().logical_and(raw_d.isfinite().all())
    added = torch.stack([torch.ones_like(r, dtype=torch.bool), raw_r > r, raw_r < r, raw_d != d])
    counts.add_(added.logical_and(finite).sum([1, 2]))
