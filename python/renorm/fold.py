"""Folding Batch Renorm into the preceding convolution or linear layer. Inference is unchanged."""
from typing import Dict, List, Tuple

import torch
import torch.fx
from torch import nn

from .convert import check_module, places_of, put
from .modules import BatchRenorm

_FOLDABLE = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, module: nn.Module, path: str) -> bool:
        return isinstance(module, BatchRenorm) or super().is_leaf_module(module, path)


def _pairs_by_graph(model: nn.Module) -> List[Tuple[str, str]]:
    """(path of a convolution or linear layer, path of the norm that alone uses its output)."""
    graph = _Tracer().trace(model)
    calls: Dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls[node.target] = calls.get(node.target, 0) + 1
    modules = dict(model.named_modules())
    pairs = []
    for node in graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], BatchRenorm) or len(node.args) != 1:
            continue
        before = node.args[0]
        if not isinstance(before, torch.fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        if type(modules[before.target]) in _FOLDABLE and calls[node.target] == calls[before.target] == 1:
            pairs.append((before.target, node.target))
    return pairs


def _pairs_by_tree(model: nn.Module) -> List[Tuple[str, str]]:
    """The same for neighbours in a Sequential, for models that torch.fx cannot trace."""
    pairs = []
    for path, parent in model.named_modules():
        if isinstance(parent, nn.Sequential) and type(parent).forward is nn.Sequential.forward:
            children = [(f"{path}.{name}" if path else name, child) for name, child in parent._modules.items()]
            for (first, layer), (second, norm) in zip(children, children[1:]):
                if type(layer) in _FOLDABLE and isinstance(norm, BatchRenorm):
                    pairs.append((first, second))
    return pairs


def fold(model: nn.Module) -> nn.Module:
    """Folds every Batch Renorm layer that directly follows a convolution or a linear layer into it, in place, and
    returns the model. The norm's place becomes its ReLU or an identity. Inference is unchanged; the model cannot be
    trained any more. The model must be in eval().

    Pairs are found by torch.fx, or, in a model that it cannot trace, as neighbours in a Sequential.
    """
    check_module("fold", model)
    if model.training:
        raise ValueError("renorm.fold: the model must be in evaluation mode; call model.eval() first")
    if not any(isinstance(module, BatchRenorm) for module in model.modules()):
        raise ValueError("renorm.fold: the model has no Batch Renorm layer")
    try:
        pairs = _pairs_by_graph(model)
    except Exception:  # torch.fx raises whatever the model's code raises on a symbolic value
        pairs = _pairs_by_tree(model)
    modules = dict(model.named_modules())
    places = places_of(model, lambda module: isinstance(module, BatchRenorm))
    pairs = [(layer, norm) for layer, norm in pairs
             if modules[norm].running_mean is not None and len(places[modules[norm]]) == 1]
    if not pairs:
        raise ValueError("renorm.fold: no Batch Renorm layer directly follows a convolution or a linear layer")
    for layer_path, norm_path in pairs:
        norm = modules[norm_path]
        _fold_into(modules[layer_path], norm)
        rest = nn.ReLU() if norm.activation == "relu" else nn.Identity()
        put(model, places[norm], rest.eval())
    return model


def _fold_into(layer: nn.Module, norm: BatchRenorm) -> None:
    with torch.no_grad():
        wide = torch.float32 if layer.weight.device.type == "mps" else torch.float64
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
        dtype = layer.weight.dtype
        layer.weight = nn.Parameter(weight.to(dtype), requires_grad=layer.weight.requires_grad)
        layer.bias = nn.Parameter(shift.to(dtype), requires_grad=layer.weight.requires_grad)
