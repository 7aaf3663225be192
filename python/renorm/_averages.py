"""The moving averages of a layer: moves, collected statistics, clip counts, and forwards that are computed again."""
from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from . import _tensors
from ._checks import Checked
from ._history import recorded


def inside_ddp() -> bool:
    """Whether the forward of a DistributedDataParallel is running."""
    return DistributedDataParallel._active_ddp_module is not None


def _over_ranks(batch_mean: Tensor, batch_std: Tensor, group: Any) -> Tuple[Tensor, Tensor]:
    """The mean over the groups of all ranks, as the statistics of one group."""
    count = batch_mean.new_full((1,), batch_mean.shape[0])
    sums = torch.cat([batch_mean.detach().sum(0), batch_std.detach().sum(0), count])
    torch.distributed.all_reduce(sums, group=group)
    mean, std = (sums[:-1] / sums[-1]).reshape(2, 1, -1)
    return mean, std


class Averaged(Checked):
    """The base of BatchRenorm, which has the buffers and `_train`."""

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
        if inside_ddp():
            self._note_process_group()
            batch_mean, batch_std = _over_ranks(batch_mean, batch_std, self._process_group)
        averages = (mean, std, step)
        history = recorded(self, averages)
        self._move_now(mean, std, step, batch_mean, batch_std, self.momentum)
        if history is not None:
            history.add(averages, (own_mean, batch_mean, batch_std, self.momentum))

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
