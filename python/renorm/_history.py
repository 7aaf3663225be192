"""Records of a layer's latest training forwards, so that one that is computed again has the averages of its first time.

torch.utils.checkpoint runs a part of the model again in the backward pass, when the averages have moved. A record holds
the averages and the step that a forward used, and sums of its batch statistics, by which it is found again.
"""
from typing import List, Optional, Tuple

import torch
from torch import Tensor

from . import _tensors

# Records per layer.
_KEPT = 16

# 1.13 has no way to ask whether a backward pass is running.
recognises_recomputation = hasattr(torch._C, "_current_graph_task_id")
backward_task = torch._C._current_graph_task_id if recognises_recomputation else lambda: -1


def in_backward() -> bool:
    """Whether this thread is inside a backward pass."""
    return backward_task() != -1


# 4 * channels numbers in the widest type of the device, and the step. Without a step, it is one more number: doubles are
# exact, and renorm::batch_renorm_train_ returns one tensor.
Record = Tuple[Tensor, Optional[Tensor]]


def _sums(batch_mean: Tensor, batch_std: Tensor) -> Tensor:
    """The statistics of all groups in 2 * channels numbers."""
    wide = _tensors.widest(batch_mean.device)
    return torch.cat([batch_mean.detach().to(wide).sum(0), batch_std.detach().to(wide).sum(0)])


def record_of(mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor) -> Record:
    sums = _sums(batch_mean, batch_std)
    return torch.cat([mean.to(sums.dtype), std.to(sums.dtype), sums]), step.clone()


def _averages_in(record: Record, dtype: torch.dtype) -> Tuple[Tensor, Tensor, Tensor]:
    numbers, step = record
    if step is None:
        numbers, step = numbers[:-1], numbers[-1].to(torch.int64)
    mean, std, _, _ = numbers.to(dtype).reshape(4, -1)
    return mean, std, step


class History:
    def __init__(self) -> None:
        self._records: List[Record] = []
        self._used: List[Record] = []  # of these, the ones that a recomputation has used

    def __bool__(self) -> bool:
        return len(self._records) > 0

    def add(self, record: Record) -> None:
        records = self._records
        records.append(record)
        if len(records) > _KEPT:
            gone = records.pop(0)
            if self._used:
                self._used = [used for used in self._used if used is not gone]

    def averages_of(self, batch_mean: Tensor, batch_std: Tensor) -> "Optional[Tuple[Tensor, Tensor, Tensor]]":
        """running_mean, running_std and step of the forward with these batch statistics; None if there is no such
        forward, or if several had different averages. The host waits for the device."""
        channels = batch_mean.shape[1]
        key = _sums(batch_mean, batch_std)
        found = [record for record in self._records if torch.equal(record[0][2 * channels:4 * channels], key)]
        fresh = [record for record in found if not any(record is used for used in self._used)]
        candidates = fresh or found
        averages = [_averages_in(record, batch_mean.dtype) for record in candidates]
        if not averages or any(not torch.equal(*pair) for other in averages[1:] for pair in zip(averages[0], other)):
            return None
        if fresh:
            self._used.append(candidates[-1])
        return averages[-1]
