"""The moving averages of a layer: moves, collected statistics, clip counts, and forwards that are computed again."""
from collections import deque
from typing import Any, Deque, Optional, Tuple

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from . import _tensors
from ._checks import Checked
from ._history import History, Record, record_of, recognises_recomputation


def inside_ddp() -> bool:
    """Whether the forward of a DistributedDataParallel is running."""
    return DistributedDataParallel._active_ddp_module is not None


# The latest tensors of collectives. A thread of Gloo that were their last owner would need the interpreter to destroy
# them, while the interpreter may wait for that thread to end (PyTorch 1.13).
_kept: Deque[Tensor] = deque(maxlen=64)


def all_reduce(sums: Tensor, group: Any) -> None:
    """Adds the tensor over the ranks of the group, in place."""
    _kept.append(sums)
    torch.distributed.all_reduce(sums, group=group)


def _sums_over_ranks(batch_mean: Tensor, batch_std: Tensor) -> Tuple[Tensor, Tensor]:
    """The sums of batch_mean and batch_std over the groups of all ranks, [2, channels], and the number of groups."""
    count = batch_mean.new_full((1,), batch_mean.shape[0])
    sums = torch.cat([batch_mean.detach().sum(0), batch_std.detach().sum(0), count])
    all_reduce(sums, DistributedDataParallel._active_ddp_module.process_group)
    return sums[:-1].reshape(2, -1), sums[-1]


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

    def _move(self, mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor) -> None:
        if self._kernels and (torch.jit.is_scripting() or batch_mean.is_cpu):
            torch.ops.renorm.move_averages_(mean, std, step, batch_mean, batch_std, self.momentum)
        else:
            with torch.no_grad():
                _tensors.move_averages_(mean, std, step, batch_mean, batch_std, self.momentum)

    @torch.jit.unused
    def _moves_by_all_ranks(self) -> bool:
        """Whether other ranks have statistics that the averages move by."""
        return inside_ddp()

    @torch.jit.unused
    def _end_eagerly(
        self, mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor, r: Tensor, d: Tensor
    ) -> None:
        """After a forward in eager mode: counts clips, records the forward, and moves the averages or collects. Inside
        DistributedDataParallel by the statistics of all ranks, of which some may have no example."""
        if _tensors.is_batched(batch_mean):  # vmap has no rule for our operators
            self._end_in_vmap(mean, std, step, batch_mean, batch_std)
            return
        if batch_mean.shape[0] > 0:
            self._count_clips(batch_mean, batch_std, mean, std, step, r, d)
            if recognises_recomputation and not _tensors.in_transform():
                self._record(record_of(mean, std, step, batch_mean, batch_std))
        if not self._moves_by_all_ranks():
            if batch_mean.shape[0] > 0:
                self._collect(batch_mean, batch_std) if self.statistics == "deferred" else self._move_now(batch_mean, batch_std)
            return
        sums, count = _sums_over_ranks(batch_mean, batch_std)
        if batch_mean.shape[0] == 0 and count.item() == 0:
            return
        if self.statistics == "deferred":
            self.collected.add_(sums)
            self.collected_groups.add_(count.to(torch.int64))
        else:
            self._move_now(*(sums / count).unsqueeze(1))

    @torch.jit.unused
    def _end_in_vmap(self, mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor) -> None:
        with torch.no_grad():
            if self.statistics == "deferred":
                self._collect(batch_mean, batch_std)
            else:
                _tensors.move_averages_(mean, std, step, batch_mean, batch_std, self.momentum)

    @torch.jit.unused
    def _record(self, record: Record) -> None:
        if self._history is None:
            self._history = History()
        self._history.add(record)

    @torch.jit.unused
    def _move_now(self, batch_mean: Tensor, batch_std: Tensor) -> None:
        averages = (self.running_mean, self.running_std, self.num_batches_tracked)
        if self._kernels and batch_mean.is_cpu:
            try:
                torch.ops.renorm.move_averages_(*averages, batch_mean, batch_std, self.momentum)
            except RuntimeError:
                self._check_finite(batch_mean, batch_std)
                raise
            return
        with torch.no_grad():
            # On the CPU the host need not wait for anything. Subclasses may have no data.
            if batch_mean.is_cpu and type(batch_mean) is Tensor and not _tensors.in_transform():
                self._check_finite(batch_mean, batch_std)
            _tensors.move_averages_(*averages, batch_mean, batch_std, self.momentum)

    @torch.jit.unused
    def _forward_again(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        """A forward inside a backward pass, of a layer with records: torch.utils.checkpoint computes an earlier one
        again. It has the averages of the first time, and nothing moves or is counted."""
        present = (self.running_mean, self.running_std, self.num_batches_tracked)
        with torch.no_grad():
            _, batch_mean, batch_std, _, _ = self._train(input, residual, *present)
            first = self._history.averages_of(batch_mean, batch_std)
        if first is not None:
            return self._train(input, residual, *first)[0]
        if self.statistics == "deferred" and not self.collected_groups == 0:
            return self._train(input, residual, *present)[0]  # nothing has moved since the first time
        raise RuntimeError(
            f"{self._who()}: a forward inside a backward pass must be one of the layer's latest 16, computed again, and "
            "this is none of them, or several with the same input; use `with renorm.deferred(model):` around the "
            "training step"
        )

    def commit(self) -> bool:
        """Deferred statistics: moves the averages once by the mean over all groups collected since the last commit, and
        counts one step. Returns False if nothing was collected. renorm.commit(model) does this for all layers."""
        if self.collected_groups is None or self.statistics == "immediate" or self.collected_groups.item() == 0:
            return False
        self._check_collected()
        mean, std = self.collected / self.collected_groups.to(self.collected.dtype)
        self._move_now(mean.unsqueeze(0), std.unsqueeze(0))
        self.discard()
        return True

    def _check_collected(self) -> None:
        if not self.collected.isfinite().all():
            collected = self.collected.clone()
            self.discard()
            self._check_finite(collected[:1], collected[1:])

    def discard(self) -> None:
        """Forgets the statistics collected since the last commit, for a step that is not taken."""
        if self.collected is not None:
            self.collected.zero_()
            self.collected_groups.zero_()
