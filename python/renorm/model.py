"""Functions for all Batch Renorm layers of a model."""
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from . import _tensors
from ._averages import all_reduce
from ._checks import check_module, checked_option
from .clip import ClipSchedule, whole_number
from .modules import BatchRenorm


def layers(model: torch.nn.Module) -> List[Tuple[str, BatchRenorm]]:
    """(path, layer) of every Batch Renorm layer, each once.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3))
    >>> [path for path, _ in renorm.layers(model)]
    ['1']
    """
    return _named_layers("layers", model)


def _named_layers(function: str, model: torch.nn.Module) -> List[Tuple[str, BatchRenorm]]:
    check_module(function, model)
    return [(path, module) for path, module in model.named_modules() if isinstance(module, BatchRenorm)]


def _layers_of(function: str, model: torch.nn.Module) -> List[BatchRenorm]:
    found = [layer for _, layer in _named_layers(function, model)]
    if not found:
        raise ValueError(f"renorm.{function}: the model has no Batch Renorm layer; renorm.convert(model) makes them")
    return found


def _set_option(model: torch.nn.Module, option: str, value: Any) -> None:
    function = f"set_{option}"
    found = _layers_of(function, model)
    value = checked_option(f"renorm.{function}", option, value)
    for layer in found:
        setattr(layer, option, value)


def set_clip(model: torch.nn.Module, clip: ClipSchedule) -> None:
    """Sets the clip schedule of every layer, from the next forward on.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3))
    >>> renorm.set_clip(model, renorm.ClipSchedule.paper(13000))
    >>> model[1].clip.hold
    500
    """
    _set_option(model, "clip", clip)


def set_momentum(model: torch.nn.Module, momentum: Optional[float]) -> None:
    """Sets the weight of the new value in the averages of every layer; None is a cumulative average.

    >>> import renorm
    >>> model = renorm.convert(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))
    >>> renorm.set_momentum(model, 0.01)        # convert keeps BatchNorm's 0.1
    >>> model[1].momentum
    0.01
    """
    _set_option(model, "momentum", momentum)


def set_statistics(model: torch.nn.Module, statistics: str) -> None:
    """Sets when the averages of every layer move: "immediate" or "deferred".

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3))
    >>> renorm.set_statistics(model, "deferred")
    >>> model[1].statistics
    'deferred'
    """
    _set_option(model, "statistics", statistics)


def set_step(model: torch.nn.Module, step: int) -> None:
    """Sets the position in the clip schedule of every layer.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3))
    >>> renorm.set_step(model, 20000)           # the model has been trained for 20,000 steps
    >>> model[1].num_batches_tracked
    tensor(20000)
    """
    step = whole_number("renorm.set_step: step", step, 0)
    for layer in _layers_of("set_step", model):
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.fill_(step)


def name_layers(model: torch.nn.Module) -> None:
    """Sets the name of every layer, which its errors have, to its path in the model.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3))
    >>> renorm.name_layers(model)
    >>> model[1].name
    '1'
    """
    for path, layer in _named_layers("name_layers", model):
        layer.name = path


def commit(model: torch.nn.Module, process_group: Any = None) -> int:
    """Deferred statistics: moves the averages of every layer once, by the mean over all groups collected since the last
    commit, and counts one step. Returns the number of layers that moved.

    With a process_group the mean is over the groups of all its ranks: one all-reduce for the whole model, and every rank
    must call it. Forwards inside DistributedDataParallel have collected those of all ranks already. If collected
    statistics are not finite, raises RuntimeError, discards all and moves none.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3, statistics="deferred"))
    >>> for part in torch.randn(2, 8, 4):
    ...     model(part).sum().backward()
    >>> renorm.commit(model)
    1
    >>> model[1].num_batches_tracked
    tensor(1)
    """
    waiting = [layer for layer in _layers_of("commit", model) if layer.collected is not None]
    waiting = [layer for layer in waiting if layer.statistics == "deferred"]
    if not waiting:
        return 0
    with torch.no_grad():
        if process_group is not None:
            _add_up(waiting, process_group)
        moved = [layer for layer in waiting if layer.collected_groups > 0]
        try:
            for layer in moved:
                layer._check_collected()
        except RuntimeError:
            discard(model)
            raise
        for layer in moved:
            layer.commit()
    return len(moved)


def _add_up(waiting: List[BatchRenorm], group: Any) -> None:
    """Adds what all ranks have collected, in one all-reduce."""
    parts = [torch.cat([layer.collected.flatten(), layer.collected_groups.to(layer.collected.dtype).reshape(1)])
             for layer in waiting]
    sums = torch.cat([part.to(_tensors.widest(part.device)) for part in parts])
    all_reduce(sums, group)
    for layer, part in zip(waiting, sums.split([len(part) for part in parts])):
        layer.collected.copy_(part[:-1].reshape(layer.collected.shape))
        layer.collected_groups.copy_(part[-1])


def discard(model: torch.nn.Module) -> None:
    """Deferred statistics: forgets what every layer has collected, for a step that is not taken.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3, statistics="deferred"))
    >>> _ = model(torch.randn(8, 4))
    >>> renorm.discard(model)
    >>> renorm.commit(model)                    # nothing is left to move the averages by
    0
    """
    for layer in _layers_of("discard", model):
        layer.discard()


@contextmanager
def deferred(model: torch.nn.Module, process_group: Any = None) -> Iterator[torch.nn.Module]:
    """One training step of several forwards: the averages move once, at the end, by commit(model, process_group).

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3))
    >>> with renorm.deferred(model):
    ...     for part in torch.randn(3, 8, 4):
    ...         model(part).sum().backward()
    >>> model[1].num_batches_tracked
    tensor(1)

    An exception inside discards what was collected.
    """
    found = [layer for layer in _layers_of("deferred", model) if not layer._defers]
    before = [layer.statistics for layer in found]
    for layer in found:
        layer.discard()
        layer.statistics, layer._defers = "deferred", True
    try:
        yield model
        if found:  # an outer deferred() commits the others
            commit(model, process_group)
    except BaseException:
        discard(model)
        raise
    finally:
        for layer, statistics in zip(found, before):
            layer.statistics, layer._defers = statistics, False


@contextmanager
def use_batch_statistics(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Evaluation with the statistics of each batch, as batchnorm in training; no average is used or moved.

    >>> import renorm
    >>> norm = renorm.BatchRenorm1d(2).eval()
    >>> x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    >>> with renorm.use_batch_statistics(norm):
    ...     norm(x).round().tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    found = _layers_of("use_batch_statistics", model)
    before = [layer.batch_statistics for layer in found]
    for layer in found:
        layer.batch_statistics = True
    try:
        yield model
    finally:
        for layer, value in zip(found, before):
            layer.batch_statistics = value


class ClipTelemetry(NamedTuple):
    """How the limits clipped r and d, as fractions of all `values`: pairs of a group and a channel."""

    values: int
    r_clipped_above: float
    r_clipped_below: float
    d_clipped: float


def clip_telemetry(model: torch.nn.Module) -> Dict[str, ClipTelemetry]:
    """The telemetry of each layer by path, since it was last cleared. It is not saved with the model.

    >>> import renorm
    >>> norm = renorm.BatchRenorm1d(2, clip=renorm.ClipSchedule.unlimited())
    >>> _ = norm(torch.randn(8, 2))
    >>> renorm.clip_telemetry(norm)
    {'': ClipTelemetry(values=2, r_clipped_above=0.0, r_clipped_below=0.0, d_clipped=0.0)}
    """
    _layers_of("clip_telemetry", model)
    result = {}
    for path, layer in layers(model):
        counts: Optional[List[int]] = None if layer.clip_counts is None else layer.clip_counts.tolist()
        if counts is not None:
            result[path] = ClipTelemetry(counts[0], *(count / max(counts[0], 1) for count in counts[1:]))
    return result


def clear_clip_telemetry(model: torch.nn.Module) -> None:
    """Starts the telemetry of every layer again.

    >>> import renorm
    >>> norm = renorm.BatchRenorm1d(2)
    >>> _ = norm(torch.randn(8, 2))
    >>> renorm.clear_clip_telemetry(norm)
    >>> renorm.clip_telemetry(norm)[""].values
    0
    """
    for layer in _layers_of("clear_clip_telemetry", model):
        if layer.clip_counts is not None:
            layer.clip_counts.zero_()
