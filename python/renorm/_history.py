"""The latest moves of a layer's averages, so that a forward that is computed again sees the averages of its first time.

torch.utils.checkpoint runs a part of the model again in the backward pass, when the averages have moved. The history
keeps a copy of the averages from every few moves and the statistics of the moves since. Moving the copy again gives the
averages before each of them, to the bit.
"""
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

Averages = Tuple[Tensor, Tensor, Tensor]  # running_mean, running_std, step

# Moves per copy. The averages before the last _MOVES to 2 * _MOVES moves can be restored.
_MOVES = 16

# 1.13 cannot tell that a backward pass is running.
tells_recomputation = hasattr(torch._C, "_current_graph_task_id")


def in_backward() -> bool:
    """Whether this thread is inside of a backward pass."""
    return tells_recomputation and torch._C._current_graph_task_id() != -1


class Move(NamedTuple):
    own_mean: Tensor  # the batch_mean of the forward, which identifies it
    batch_mean: Tensor
    batch_std: Tensor
    momentum: Optional[float]


class _Span:
    """Averages, and the moves that followed."""

    def __init__(self, averages: Averages) -> None:
        self.averages = tuple(tensor.clone() for tensor in averages)
        self.moves: List[Move] = []


def _versions(averages: Averages) -> Optional[Tuple[int, ...]]:
    """Changes whenever somebody writes to the averages. None for inference tensors, which do not count."""
    mean, std, step = averages
    if mean.is_inference():
        return None
    return mean._version, std._version, step._version


class History:
    def __init__(self) -> None:
        self._spans: List[_Span] = []
        self._versions: Any = ()  # equal to no versions: the first move starts a span

    def before_move(self, averages: Averages) -> None:
        # Somebody else has written to the averages: the moves so far do not lead to them.
        if self._versions != _versions(averages) or len(self._spans[-1].moves) == _MOVES:
            self._spans.append(_Span(averages))
            del self._spans[:-2]

    def after_move(self, averages: Averages, move: Move) -> None:
        self._versions = _versions(averages)
        self._spans[-1].moves.append(move)

    def before(self, own_mean: Tensor, move: Callable[..., None]) -> Optional[Averages]:
        """The averages before the latest move that was made by a forward with the batch_mean `own_mean`."""
        for span in reversed(self._spans):
            for made in reversed(range(len(span.moves))):
                if torch.equal(span.moves[made].own_mean, own_mean):
                    averages = tuple(tensor.clone() for tensor in span.averages)
                    for one in span.moves[:made]:
                        move(*averages, one.batch_mean, one.batch_std, one.momentum)
                    return averages
        return None
