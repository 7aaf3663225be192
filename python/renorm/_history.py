"""The latest moves of a layer's averages, so that a forward that is computed again sees the averages of its first time.

torch.utils.checkpoint runs a part of the model again in the backward pass, when the averages have moved. The history
keeps a copy of the averages from every few moves and the statistics of the moves since. Moving the copy again gives the
averages before each of them, to the bit.
"""
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor

Averages = Tuple[Tensor, Tensor, Tensor]  # running_mean, running_std, step

# Moves per copy. The averages before the latest _MOVES to 2 * _MOVES moves can be restored.
_MOVES = 16

# 1.13 cannot tell that a backward pass is running.
tells_recomputation = hasattr(torch._C, "_current_graph_task_id")


def in_backward() -> bool:
    """Whether this thread is inside of a backward pass."""
    return tells_recomputation and torch._C._current_graph_task_id() != -1


# own_mean, batch_mean, batch_std, momentum: the batch_mean of the forward, which identifies it, and the move.
Move = Tuple[Tensor, Tensor, Tensor, Optional[float]]


class Span:
    """A copy of the averages and the moves that followed."""

    def __init__(self, averages: Averages, previous: "Optional[Span]") -> None:
        self.averages = tuple(tensor.clone() for tensor in averages)
        self.moves: List[Move] = []
        self.version = -1  # after the latest move
        self.previous = previous
        if previous is not None:
            previous.previous = None

    def add(self, averages: Averages, move: Move) -> None:
        self.moves.append(move)
        self.version = _version(averages)

    def before(self, own_mean: Tensor, move: Callable[..., None]) -> Optional[Averages]:
        """The averages before the latest move that was made by a forward with the batch_mean `own_mean`."""
        for made in reversed(range(len(self.moves))):
            if torch.equal(self.moves[made][0], own_mean):
                averages = tuple(tensor.clone() for tensor in self.averages)
                for _, batch_mean, batch_std, momentum in self.moves[:made]:
                    move(*averages, batch_mean, batch_std, momentum)
                return averages
        return None if self.previous is None else self.previous.before(own_mean, move)


def _version(averages: Averages) -> int:
    """Whoever writes to one of the averages raises it."""
    mean, std, step = averages
    return mean._version + std._version + step._version


def recorded(layer: Any, averages: Averages) -> Optional[Span]:
    """The span of the layer's history that the next move belongs to. None where moves are not recorded."""
    if not tells_recomputation or averages[0].is_inference():
        return None
    history = layer._history
    if history is None or history.version != _version(averages) or len(history.moves) == _MOVES:
        history = layer._history = Span(averages, history)  # a slow assignment, as every one of torch.nn.Module
    return history
