"""Folding Batch Renorm into the preceding convolution or linear layer. Inference is unchanged."""
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch
import torch.fx
from torch import nn

from . import _tensors
from ._checks import check_module
from .convert import Place, has_hooks, is_plain_sequential, is_single, places_of, put
from .modules import BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d
from .sync import SyncBatchRenorm

_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_NORMS = (BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d, SyncBatchRenorm)

# (path of a convolution or linear layer, path of the norm that alone uses its output)
_Pair = Tuple[str, str]


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, module: nn.Module, path: str) -> bool:
        return isinstance(module, BatchRenorm) or super().is_leaf_module(module, path)


def _calls(graph: torch.fx.Graph) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            counts[node.target] = counts.get(node.target, 0) + 1
    return counts


def _pairs_by_graph(model: nn.Module) -> Iterator[_Pair]:
    graph = _Tracer().trace(model)
    calls = _calls(graph)
    # Modules with a tensor that the model also reads itself, such as the weight of a tied autoencoder.
    read = {model.get_submodule(node.target.rpartition(".")[0]) for node in graph.nodes if node.op == "get_attr"}
    for node in graph.nodes:
        if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
            continue
        before = node.args[0]
        if not isinstance(before, torch.fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        if calls[node.target] == calls[before.target] == 1:
            if not read & {model.get_submodule(before.target), model.get_submodule(node.target)}:
                yield before.target, node.target


def _pairs_by_tree(model: nn.Module) -> Iterator[_Pair]:
    """Neighbours in a Sequential, for models that torch.fx cannot trace."""
    for path, parent in model.named_modules():
        if is_plain_sequential(parent):
            paths = [f"{path}.{name}" if path else name for name in parent._modules]
            yield from zip(paths, paths[1:])


def _parents(path: str) -> Set[str]:
    """The path itself and those of all modules around it but the model."""
    parts = path.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts) + 1)}


def _is_plain(module: nn.Module) -> bool:
    """Whether forward and parameters are those of the class: no weight_norm, pruning or parametrization."""
    return "forward" not in module.__dict__ and "weight" in module._parameters and "bias" in module._parameters


def _fits(layer: nn.Module, norm: BatchRenorm) -> bool:
    """Whether the output features of `layer` can be the channels of `norm`: a Linear's are the last dimension."""
    if isinstance(layer, nn.Linear):
        return layer.out_features == norm.num_features and type(norm) in (BatchRenorm, BatchRenorm1d, SyncBatchRenorm)
    return layer.out_channels == norm.num_features


def _uses_averages(norm: BatchRenorm) -> bool:
    averages = (norm.running_mean, norm.running_std, norm.num_batches_tracked)
    return not norm.training and not norm.batch_statistics and all(tensor is not None for tensor in averages)


def _owners(model: nn.Module) -> Dict[int, int]:
    """How many modules hold a parameter, by id."""
    counts: Dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            counts[id(parameter)] = counts.get(id(parameter), 0) + 1
    return counts


class _Plan(NamedTuple):
    layer: nn.Module
    weight: nn.Parameter
    bias: nn.Parameter
    places: List[Place]  # of the norm
    rest: nn.Module  # what takes its place


class _Planner:
    """Finds the pairs of one model that are certain to give the same result when folded."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._places = places_of(model, lambda module: type(module) in _LAYERS + _NORMS)
        self._owners = _owners(model)

    def plan(self, pair: _Pair) -> Optional[_Plan]:
        layer, norm = [self._model.get_submodule(path) for path in pair]
        if type(layer) not in _LAYERS or type(norm) not in _NORMS:
            return None
        if not (_is_plain(layer) and _is_plain(norm) and _uses_averages(norm) and _fits(layer, norm)):
            return None
        if not is_single(self._places[layer]) or not is_single(self._places[norm]):
            return None
        if any(self._owners[id(parameter)] > 1 for parameter in layer.parameters()):
            return None
        # Hooks of the two and of modules around only one of them would see other values.
        first, second = map(_parents, pair)
        if any(has_hooks(self._model.get_submodule(path)) for path in first ^ second):
            return None
        rest = nn.ReLU() if norm.activation == "relu" else nn.Identity()
        return _Plan(layer, *_folded(layer, norm), self._places[norm], rest.eval())


def _folded(layer: nn.Module, norm: BatchRenorm) -> Tuple[nn.Parameter, nn.Parameter]:
    """Weight and bias of `layer` followed by `norm`."""
    with torch.no_grad():
        wide = _tensors.widest(layer.weight.device)
        scale = 1 / norm.running_std.to(wide)
        if norm.weight is not None:
            scale = scale * norm.weight.to(wide)
        shift = -norm.running_mean.to(wide)
        if layer.bias is not None:
            shift = shift + layer.bias.to(wide)
        shift = shift * scale
        if norm.bias is not None:
            shift = shift + norm.bias.to(wide)
        weight = layer.weight.to(wide) * scale.reshape([-1] + [1] * (layer.weight.dim() - 1))
    dtype, trained = layer.weight.dtype, layer.weight.requires_grad
    return nn.Parameter(weight.to(dtype), trained), nn.Parameter(shift.to(dtype), trained)


def fold(model: nn.Module) -> nn.Module:
    """Folds every Batch Renorm layer that directly follows a convolution or a linear layer into it, in place, and
    returns the model. The norm's place becomes its ReLU or an identity. Inference is unchanged; the model cannot be
    trained any more. The model must be in eval(). After an error the model is as it was.

    Pairs are found by torch.fx. In a model that it cannot trace, they are neighbours in a Sequential, which is assumed
    to be called as a whole. The input of a Linear is assumed to be [N, C].

    A pair stays as it is if folding could change a result: if one of the two has hooks, is used twice, or has a weight
    that is computed, shared or read elsewhere, if the norm adds a residual or uses the statistics of the batch, or if
    it is a subclass.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3, activation="relu"))
    >>> renorm.fold(model.eval())
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): ReLU()
    )
    """
    check_module("fold", model)
    if model.training:
        raise ValueError("renorm.fold: the model must be in evaluation mode; call model.eval() first")
    if not any(isinstance(module, BatchRenorm) for module in model.modules()):
        raise ValueError("renorm.fold: the model has no Batch Renorm layer")
    try:
        pairs = list(_pairs_by_graph(model))
    except Exception:  # torch.fx raises whatever the model's code raises on a symbolic value
        pairs = list(_pairs_by_tree(model))
    planner = _Planner(model)
    plans = [plan for plan in map(planner.plan, pairs) if plan is not None]
    if not plans:
        raise ValueError("renorm.fold: no Batch Renorm layer directly follows a convolution or a linear layer")
    for plan in plans:
        plan.layer.weight, plan.layer.bias = plan.weight, plan.bias
        put(model, plan.places, plan.rest)
    return model
