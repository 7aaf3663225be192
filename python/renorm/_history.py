"""Records of a layer's latest training forwards, so that one that is computed again has the averages of its first time.

torch.utils.checkpoint runs a part of the model again in the backward pass, when the averages have moved. A record holds
the averages and the step that a forward used, and sums of its batch statistics, by which it is found again: 4 * channels
+ 1 doubles, as renorm::batch_renorm_train_ returns them.
"""
from typing import List, Optional, Tuple

import torch
from torch import Tensor

# Records per layer.
_KEPT = 16

# 1.13 has no way to ask whether a backward pass is running.
recognises_recomputation = hasattr(torch._C, "_current_graph_task_id")
backward_task = torch._C._current_graph_task_id if recognises_recomputation else lambda: -1


def in_backward() -> bool:
    """Whether this thread is inside a backward pass."""
    return backward_task() != -1


def record_of(mean: Tensor, std: Tensor, step: Tensor, batch_mean: Tensor, batch_std: Tensor) -> Tensor:
    rows = [mean, std, batch_mean.detach().double().sum(0), batch_std.detach().double().sum(0), step.reshape(1)]
    return torch.cat([row.double() for row in rows])


class History:
    def __init__(self) -> None:
        self._records: List[Tensor] = []
        self._used: List[Tensor] = []  # of these, the ones that a recomputation has used

    def __bool__(self) -> bool:
        return len(self._records) > 0

    def add(self, record: Tensor) -> None:
        records = self._records
        records.append(record)
        if len(records) > _KEPT:
            gone = records.pop(0)
            if self._used:
                self._used = [used for used in self._used if used is not gone]

    def averages_of(self, batch_mean: Tensor, batch_std: Tensor) -> "Optional[Tuple[Tensor, Tensor, Tensor]]":
        """running_mean, running_std and step of the forward with these batch statistics; None if there is no such
        forward, or if several had different averages."""
        channels = batch_mean.shape[1]
        key = torch.cat([batch_mean.double().sum(0), batch_std.double().sum(0)])
        found = [record for record in self._records if torch.equal(record[2 * channels:4 * channels], key)]
        fresh = [record for record in found if not any(record is used for used in self._used)]
        candidates = fresh or found
        if not candidates or any(not torch.equal(candidates[0], other) for other in candidates[1:]):
            return None
        record = candidates[-1]
        if fresh:
            self._used.append(record)
        mean, std, _, _ = record[:-1].to(batch_mean.dtype).reshape(4, channels)
        return mean, std, record[-1].to(torch.int64)
