"""BatchNorm to Batch Renorm and back, and folding into the preceding layer. Inference is unchanged."""
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Type, Union

import torch
from torch import nn

from .clip import ClipSchedule
from .modules import BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d

Patterns = Union[str, Iterable[str]]

_TWINS: Dict[Type[nn.Module], Type[BatchRenorm]] = {
    nn.BatchNorm1d: BatchRenorm1d,
    nn.BatchNorm2d: BatchRenorm2d,
    nn.BatchNorm3d: BatchRenorm3d,
    nn.SyncBatchNorm: BatchRenorm,
}
_BACK: Dict[Type[nn.Module], Type[nn.Module]] = {
    BatchRenorm1d: nn.BatchNorm1d,
    BatchRenorm2d: nn.BatchNorm2d,
    BatchRenorm3d: nn.BatchNorm3d,
}


class FusedReLU(nn.Identity):
    """The place of a ReLU that is part of the preceding Batch Renorm layer."""


# A module and the places that hold it: (path, parent, name). The model itself has no parent.
_Place = Tuple[str, Optional[nn.Module], str]


def _places(model: nn.Module, wanted: Callable[[nn.Module], bool]) -> Dict[nn.Module, List[_Place]]:
    found: Dict[nn.Module, List[_Place]] = {}
    if wanted(model):
        found[model] = [("", None, "")]
    for path, parent in model.named_modules():
        for name, child in parent.named_children() if not wanted(parent) else ():
            if wanted(child):
                found.setdefault(child, [])
    # named_children() lists a module once per parent; a shared one has several names.
    for path, parent in model.named_modules():
        for name, child in parent._modules.items():
            if child in found:
                found[child].append((f"{path}.{name}" if path else name, parent, name))
    return found


def _as_patterns(patterns: Patterns) -> List[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _select(
    function: str, found: Dict[nn.Module, List[_Place]], include: Patterns, exclude: Patterns
) -> Dict[nn.Module, List[_Place]]:
    """The modules with a path that a pattern of `include` matches and none of `exclude`. A pattern that matches no path
    is an error."""
    paths = [path for places in found.values() for path, _, _ in places]
    included, excluded = _as_patterns(include), _as_patterns(exclude)
    for option, patterns in (("include", included), ("exclude", excluded)):
        for pattern in patterns:
            if not any(fnmatchcase(path, pattern) for path in paths):
                some = ", ".join(repr(path) for path in paths[:3])
                raise ValueError(f"renorm.{function}: {option} pattern {pattern!r} matches no layer; layers are {some}, ...")

    def selected(path: str) -> bool:
        return any(fnmatchcase(path, one) for one in included) and not any(fnmatchcase(path, one) for one in excluded)

    return {module: places for module, places in found.items() if any(selected(path) for path, _, _ in places)}


_HOOKS = [
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
    "_non_full_backward_hooks",
]


def _keep_manners(old: nn.Module, new: nn.Module) -> nn.Module:
    """The hooks and the train/eval flag of `old`."""
    for name in _HOOKS:
        if name in old.__dict__:
            new.__dict__[name] = old.__dict__[name]
    new.training = old.training
    return new


def _parameter(old: Optional[torch.Tensor], like: torch.Tensor) -> nn.Parameter:
    """A parameter of the dtype of `like`, with the values of `old` or 1. The same object if nothing changes, because an
    optimizer may hold it."""
    if old is None:
        return nn.Parameter(torch.ones_like(like), requires_grad=False)
    if isinstance(old, nn.Parameter) and old.dtype == like.dtype:
        return old
    return nn.Parameter(old.detach().to(like.dtype), requires_grad=old.requires_grad)


def _from_batch_norm(norm: nn.Module, clip: ClipSchedule, activation: str) -> BatchRenorm:
    held = norm.weight if norm.weight is not None else norm.running_mean
    options: Dict[str, Any] = {} if held is None else {"device": held.device, "dtype": held.dtype}
    new = _TWINS[type(norm)](
        norm.num_features, max(norm.eps, 1.2e-38), norm.momentum, norm.affine, norm.track_running_stats,
        activation=activation, clip=clip, **options
    )
    if norm.weight is not None:
        new.weight = _parameter(norm.weight, new.weight)
        new.bias = _parameter(norm.bias, new.bias)
    if norm.running_mean is not None:
        with torch.no_grad():
            new.running_mean.copy_(norm.running_mean)
            new.running_std.copy_((norm.running_var.double() + norm.eps).sqrt()
                                  if norm.running_var.device.type != "mps" else (norm.running_var + norm.eps).sqrt())
            # The number of batches in a cumulative average. Otherwise the schedule starts at 0.
            if norm.momentum is None and norm.num_batches_tracked is not None:
                new.num_batches_tracked.copy_(norm.num_batches_tracked)
    _keep_manners(norm, new)
    return new


def _following_relu(places: List[_Place]) -> Optional[Tuple[nn.Sequential, str]]:
    """The ReLU that certainly is the next to see the output: the next element of the one Sequential that holds it."""
    if len(places) != 1:
        return None
    _, parent, name = places[0]
    if not isinstance(parent, nn.Sequential) or type(parent).forward is not nn.Sequential.forward:
        return None
    names = list(parent._modules)
    after = names.index(name) + 1
    if after == len(names):
        return None
    relu = parent._modules[names[after]]
    if type(relu) is not nn.ReLU or any(relu.__dict__.get(hooks) for hooks in _HOOKS):
        return None
    return parent, names[after]


def convert(
    model: nn.Module, include: Patterns = "*", exclude: Patterns = (), clip: ClipSchedule = ClipSchedule.paper(),
    fuse_relu: bool = False
) -> nn.Module:
    """Replaces every BatchNorm1d, 2d, 3d and SyncBatchNorm by Batch Renorm, in place, and returns the model.

    Weights, averages (std = sqrt(var + eps)), train/eval flag, dtype, device, hooks, names and requires_grad are kept;
    inference is unchanged. The clip schedule starts at step 0. `include` and `exclude` are patterns of paths, such as
    "layer1.*". `fuse_relu` makes a ReLU that directly follows in a Sequential part of the layer.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU())
    >>> renorm.convert(model, clip=renorm.ClipSchedule.paper(1000), fuse_relu=True)
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): BatchRenorm1d(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, activation='relu', clip=(38, 3.0, 308, 5.0, 192))
      (2): FusedReLU()
    )

    A subclass of BatchNorm is an error, because its own behaviour would be lost: exclude it. After an error the model is
    as it was.
    """
    if not isinstance(clip, ClipSchedule):
        raise TypeError(f"renorm.convert: clip must be a ClipSchedule such as ClipSchedule.paper(20000), got {clip!r}")
    found = _places(model, lambda module: isinstance(module, nn.modules.batchnorm._BatchNorm))
    if not found:
        raise ValueError("renorm.convert: the model has no BatchNorm layer")
    chosen = _select("convert", found, include, exclude)
    for norm, places in chosen.items():
        if type(norm) not in _TWINS:
            remedy = "run one forward first" if "Lazy" in type(norm).__name__ else "exclude it"
            raise TypeError(f"renorm.convert: {places[0][0]!r} is a {type(norm).__name__}, not a plain BatchNorm; {remedy}")
    plans = []
    for norm, places in chosen.items():
        relu = _following_relu(places) if fuse_relu else None
        plans.append((places, _from_batch_norm(norm, clip, "none" if relu is None else "relu"), relu))
    for places, new, relu in plans:
        model = _put(model, places, new)
        if relu is not None:
            sequence, name = relu
            sequence._modules[name] = FusedReLU().train(sequence._modules[name].training)
    return model


def _put(model: nn.Module, places: List[_Place], new: nn.Module) -> nn.Module:
    """Puts `new` in all places and returns the model, which is `new` if a place is the model itself."""
    for _, parent, name in places:
        if parent is None:
            model = new
        else:
            parent._modules[name] = new
    return model


def _to_batch_norm(path: str, norm: BatchRenorm) -> nn.Module:
    kind = _BACK.get(type(norm))
    if kind is None:
        if type(norm) is not BatchRenorm:
            raise TypeError(f"renorm.revert: {path!r} is a {type(norm).__name__}, a class of your own; exclude it")
        kind = nn.SyncBatchNorm
    held = norm.bias if norm.bias is not None else norm.running_mean
    options: Dict[str, Any] = {} if held is None else {"device": held.device, "dtype": held.dtype}
    new = kind(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats, **options)
    if norm.bias is not None:
        new.weight = _parameter(norm.weight, norm.bias)
        new.bias = _parameter(norm.bias, norm.bias)
    if norm.running_mean is not None:
        with torch.no_grad():
            std = norm.running_std if norm.running_std.device.type == "mps" else norm.running_std.double()
            var = std * std - norm.eps
            # std is at least sqrt(eps) but for the rounding of its dtype.
            if (var < -8 * torch.finfo(norm.running_std.dtype).eps * norm.eps).any():
                raise ValueError(
                    f"renorm.revert: running_std of {path!r} is below sqrt(eps), which BatchNorm cannot represent"
                )
            new.running_mean.copy_(norm.running_mean)
            new.running_var.copy_(var.clamp(min=0))
            new.num_batches_tracked.copy_(norm.num_batches_tracked)
    _keep_manners(norm, new)
    return new


def revert(model: nn.Module, include: Patterns = "*", exclude: Patterns = ()) -> nn.Module:
    """Replaces every Batch Renorm layer by BatchNorm, in place, and returns the model: for exporters and runtimes that
    have no Batch Renorm. Inference is unchanged.

    A ReLU that convert() fused is a module again; another fused ReLU becomes part of a Sequential of norm and ReLU in
    the layer's place. After an error the model is as it was.
    """
    found = _places(model, lambda module: isinstance(module, BatchRenorm))
    if not found:
        raise ValueError("renorm.revert: the model has no Batch Renorm layer")
    plans = []
    for norm, places in _select("revert", found, include, exclude).items():
        new, relu = _to_batch_norm(places[0][0], norm), None
        if norm.activation == "relu":
            relu = _place_of_fused_relu(places)
            if relu is None:
                new = nn.Sequential()
                new.add_module("norm", _to_batch_norm(places[0][0], norm))
                new.add_module("relu", nn.ReLU())
                new.train(norm.training)
        plans.append((places, new, relu))
    for places, new, relu in plans:
        model = _put(model, places, new)
        if relu is not None:
            sequence, name = relu
            sequence._modules[name] = nn.ReLU().train(sequence._modules[name].training)
    return model


def _place_of_fused_relu(places: List[_Place]) -> Optional[Tuple[nn.Sequential, str]]:
    if len(places) != 1 or not isinstance(places[0][1], nn.Sequential):
        return None
    _, parent, name = places[0]
    names = list(parent._modules)
    after = names.index(name) + 1
    if after == len(names) or not isinstance(parent._modules[names[after]], FusedReLU):
        return None
    return parent, names[after]


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
    if model.training:
        raise ValueError("renorm.fold: the model must be in evaluation mode; call model.eval() first")
    if not any(isinstance(module, BatchRenorm) for module in model.modules()):
        raise ValueError("renorm.fold: the model has no Batch Renorm layer")
    try:
        pairs = _pairs_by_graph(model)
    except Exception:  # torch.fx raises whatever the model's code raises on a symbolic value
        pairs = _pairs_by_tree(model)
    modules = dict(model.named_modules())
    places = _places(model, lambda module: isinstance(module, BatchRenorm))
    pairs = [(layer, norm) for layer, norm in pairs
             if modules[norm].running_mean is not None and len(places[modules[norm]]) == 1]
    if not pairs:
        raise ValueError("renorm.fold: no Batch Renorm layer directly follows a convolution or a linear layer")
    for layer_path, norm_path in pairs:
        norm = modules[norm_path]
        _fold_into(modules[layer_path], norm)
        rest = nn.ReLU() if norm.activation == "relu" else nn.Identity()
        _put(model, places[norm], rest.eval())
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
