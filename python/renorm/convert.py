"""BatchNorm to Batch Renorm and back. Inference is unchanged."""
import weakref
from copy import copy
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Type, Union

import torch
from torch import nn

from . import _tensors
from ._checks import check_module
from .clip import ClipSchedule
from .modules import BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d
from .sync import SyncBatchRenorm

Patterns = Union[str, Iterable[str]]


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm of input [N, C, ...] of any rank: what revert() makes of BatchRenorm."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"BatchNorm: input must be [N, C, ...], got {input.dim()} dimensions")


class FusedReLU(nn.Identity):
    """The place of a ReLU that is part of the preceding Batch Renorm layer. `inplace` is the option of that ReLU."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


_TWINS: Dict[Type[nn.Module], Type[BatchRenorm]] = {
    nn.BatchNorm1d: BatchRenorm1d,
    nn.BatchNorm2d: BatchRenorm2d,
    nn.BatchNorm3d: BatchRenorm3d,
    nn.SyncBatchNorm: BatchRenorm,
    BatchNorm: BatchRenorm,
}
_BACK: Dict[Type[nn.Module], Type[nn.Module]] = {
    BatchRenorm1d: nn.BatchNorm1d,
    BatchRenorm2d: nn.BatchNorm2d,
    BatchRenorm3d: nn.BatchNorm3d,
    BatchRenorm: BatchNorm,
    SyncBatchRenorm: BatchNorm,
}

# A place that holds a module: (path, parent, name). The model itself has no parent.
Place = Tuple[str, Optional[nn.Module], str]


def places_of(model: nn.Module, wanted: Callable[[nn.Module], bool]) -> Dict[nn.Module, List[Place]]:
    """The wanted modules and all their places. A shared module, or one in a shared module, has several."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found: Dict[nn.Module, List[Place]] = {}
    for path, module in modules.items():
        if wanted(module):
            parent, _, name = path.rpartition(".")
            found.setdefault(module, []).append((path, modules[parent] if path else None, name))
    return found


def is_single(places: List[Place]) -> bool:
    """Whether one parent holds the module, under one name."""
    return len({(id(parent), name) for _, parent, name in places}) == 1


def is_plain_sequential(module: Optional[nn.Module]) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def put(model: nn.Module, places: List[Place], new: nn.Module) -> nn.Module:
    """Puts `new` in all places and returns the model, which is `new` if a place is the model itself."""
    for _, parent, name in places:
        if parent is None:
            model = new
        else:
            parent._modules[name] = new
    return model


def _as_patterns(function: str, option: str, patterns: Patterns) -> List[str]:
    found = list(patterns) if isinstance(patterns, Iterable) and not isinstance(patterns, str) else [patterns]
    if not all(isinstance(pattern, str) for pattern in found):
        raise TypeError(f"renorm.{function}: {option} must be a pattern or a list of patterns, got {patterns!r:.60}")
    return found


def _select(
    function: str, found: Dict[nn.Module, List[Place]], include: Patterns, exclude: Patterns
) -> Dict[nn.Module, List[Place]]:
    """The modules with a path that a pattern of `include` matches, and no path that one of `exclude` matches. A pattern
    that matches no path is an error, and so is an empty result."""
    paths = [path for places in found.values() for path, _, _ in places]
    included = _as_patterns(function, "include", include)
    excluded = _as_patterns(function, "exclude", exclude)
    for option, patterns in (("include", included), ("exclude", excluded)):
        for pattern in patterns:
            if not any(fnmatchcase(path, pattern) for path in paths):
                some = ", ".join([repr(path) for path in paths[:3]] + ["..."] * (len(paths) > 3))
                raise ValueError(f"renorm.{function}: {option} pattern {pattern!r} matches no layer; layers are {some}")

    def matches(places: List[Place], patterns: List[str]) -> bool:
        return any(fnmatchcase(path, pattern) for path, _, _ in places for pattern in patterns)

    chosen = {norm: at for norm, at in found.items() if matches(at, included) and not matches(at, excluded)}
    if not chosen:
        raise ValueError(f"renorm.{function}: the combination of include and exclude selects no layer")
    return chosen


_OUTPUT_HOOKS = ["_forward_hooks", "_backward_hooks", "_backward_pre_hooks"]
_HOOKS = _OUTPUT_HOOKS + [
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_is_full_backward_hook", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
]


def has_hooks(module: nn.Module, kinds: Iterable[str] = _HOOKS) -> bool:
    return any(module.__dict__.get(kind) for kind in kinds)


def _give_hooks_to(new: nn.Module) -> None:
    for hook in new._load_state_dict_pre_hooks.values():
        if getattr(hook, "with_module", False):  # PyTorch's wrapper has a weak reference to the old module
            hook.module = weakref.ref(new)


def _copy_state(old: nn.Module, new: nn.Module, fresh: nn.Module) -> None:
    """Gives `new` the hooks and the train/eval flag of `old`, and the attributes that a user set: those that `fresh`, a
    new module of the same class, does not have."""
    for name, value in old.__dict__.items():
        if name in _HOOKS or (name not in fresh.__dict__ and not hasattr(new, name)):
            new.__dict__[name] = value
    _give_hooks_to(new)
    for module in new.modules():
        module.training = old.training


def _check_plain(function: str, path: str, norm: nn.Module) -> None:
    for name in ("weight", "bias"):
        if name not in norm._parameters:
            raise TypeError(
                f"renorm.{function}: the {name} of {path!r} is not a plain parameter, as after pruning or weight_norm; "
                "make it permanent or exclude the layer"
            )
    if "forward" in norm.__dict__:
        raise TypeError(f"renorm.{function}: {path!r} has a forward of its own; exclude it")


def _factory_options(*held: Optional[torch.Tensor]) -> Dict[str, Any]:
    """Device and dtype of the first tensor that exists."""
    for tensor in held:
        if tensor is not None:
            return {"device": tensor.device, "dtype": tensor.dtype}
    return {}


class _Parameters:
    """New parameters, one per old one, so that tied parameters stay tied."""

    def __init__(self) -> None:
        self._made: Dict[Tuple[int, torch.dtype], nn.Parameter] = {}

    def of(self, old: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
        """The same object if it has the dtype, because an optimizer may hold it."""
        if old.dtype == dtype:
            return old
        key = (id(old), dtype)
        if key not in self._made:
            self._made[key] = nn.Parameter(old.detach().to(dtype), requires_grad=old.requires_grad)
        return self._made[key]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(_tensors.widest(tensor.device))


def _from_batch_norm(norm: nn.Module, clip: ClipSchedule, activation: str, parameters: _Parameters) -> BatchRenorm:
    # BatchNorm's forward decides by its tensors, whatever the options are.
    affine = norm.weight is not None or norm.bias is not None
    tracks = norm.running_mean is not None and norm.running_var is not None
    eps = max(norm.eps, 1.2e-38)  # BatchNorm's may be 0, running_std may not
    new = _TWINS[type(norm)](
        norm.num_features, eps, norm.momentum, affine, tracks, activation=activation, clip=clip,
        scale=norm.weight is not None or not affine, **_factory_options(norm.weight, norm.bias, norm.running_mean)
    )
    if norm.weight is not None:
        new.weight = parameters.of(norm.weight, new.weight.dtype)
    if affine:
        new.bias = None if norm.bias is None else parameters.of(norm.bias, new.bias.dtype)
    if tracks:
        with torch.no_grad():
            new.running_mean.copy_(norm.running_mean)
            new.running_std.copy_((_wide(norm.running_var) + eps).sqrt())
            # The number of batches in a cumulative average. Otherwise the schedule starts at 0.
            if norm.momentum is None and norm.num_batches_tracked is not None:
                new.num_batches_tracked.copy_(norm.num_batches_tracked)
    return new


def _next_in_sequential(places: List[Place], kind: Type[nn.Module]) -> Optional[Tuple[nn.Sequential, str]]:
    """The module of this class that certainly is the next to see the output: the next element of the one Sequential
    that holds the layer."""
    _, parent, name = places[0]
    if not is_single(places) or not is_plain_sequential(parent):
        return None
    names = list(parent._modules)
    after = names.index(name) + 1
    if after == len(names) or type(parent._modules[names[after]]) is not kind:
        return None
    return parent, names[after]


def _fusable_relu(norm: nn.Module, places: List[Place]) -> Optional[Tuple[nn.Sequential, str]]:
    """The ReLU after `norm`, unless a hook would see another value."""
    if has_hooks(norm, _OUTPUT_HOOKS):
        return None
    relu = _next_in_sequential(places, nn.ReLU)
    return None if relu is None or has_hooks(relu[0]._modules[relu[1]]) else relu


def convert(
    model: nn.Module, include: Patterns = "*", exclude: Patterns = (), clip: ClipSchedule = ClipSchedule.paper(),
    fuse_relu: bool = False
) -> nn.Module:
    """Replaces every BatchNorm1d, 2d, 3d and SyncBatchNorm by Batch Renorm, in place, and returns the model.

    Weights, averages (std = sqrt(var + eps)), train/eval flag, dtype, device, hooks, names, requires_grad and
    attributes that you set are kept, with the same Parameter objects for float32 and float64 models; inference is
    unchanged. The clip schedule starts at step 0. A SyncBatchNorm becomes a layer with statistics of each process;
    convert_sync() makes them those of all processes.

    `include` and `exclude` are patterns of paths, such as "layer1.*". A layer with several paths is converted if a
    pattern of `include` matches one of them and no pattern of `exclude` matches any.

    `fuse_relu` makes a ReLU that directly follows in a Sequential part of the layer, unless a hook on one of the two
    would see another value. It assumes that the Sequential is called as a whole: a model that iterates over its
    elements sees the ReLU's output one element earlier.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU())
    >>> renorm.convert(model, clip=renorm.ClipSchedule.paper(1000), fuse_relu=True)
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): BatchRenorm1d(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, activation='relu', clip=(38, 3.0, 308, 5.0, 192))
      (2): FusedReLU()
    )

    A subclass of BatchNorm is an error, because its own behaviour would be lost: exclude it. After an error the model
    is as it was.
    """
    check_module("convert", model)
    if not isinstance(clip, ClipSchedule):
        raise TypeError(f"renorm.convert: clip must be a ClipSchedule such as ClipSchedule.paper(20000), got {clip!r}")
    found = places_of(model, lambda module: isinstance(module, nn.modules.batchnorm._BatchNorm))
    if not found:
        if any(isinstance(module, BatchRenorm) for module in model.modules()):
            raise ValueError("renorm.convert: the model has no BatchNorm layer; it has Batch Renorm layers already")
        if isinstance(model, torch.jit.ScriptModule):
            raise TypeError(
                "renorm.convert: a ScriptModule cannot be changed; convert the model before torch.jit.script"
            )
        raise ValueError("renorm.convert: the model has no BatchNorm layer")
    plans, parameters = [], _Parameters()
    for norm, places in _select("convert", found, include, exclude).items():
        path = places[0][0]
        if type(norm) not in _TWINS:
            remedy = "run one forward first" if "Lazy" in type(norm).__name__ else "exclude it"
            raise TypeError(f"renorm.convert: {path!r} is a {type(norm).__name__}, not a plain BatchNorm; {remedy}")
        _check_plain("convert", path, norm)
        relu = _fusable_relu(norm, places) if fuse_relu else None
        plans.append((norm, places, _from_batch_norm(norm, clip, "none" if relu is None else "relu", parameters), relu))
    for norm, places, new, relu in plans:
        _copy_state(norm, new, type(norm)(1))
        new.name = places[0][0]
        model = put(model, places, new)
        if relu is not None:
            sequence, name = relu
            old = sequence._modules[name]
            sequence._modules[name] = FusedReLU(old.inplace)
            _copy_state(old, sequence._modules[name], nn.ReLU())
    return model


def _to_batch_norm(path: str, norm: BatchRenorm, parameters: _Parameters) -> nn.Module:
    affine = norm.weight is not None or norm.bias is not None
    tracks = norm.running_mean is not None and norm.running_std is not None and norm.num_batches_tracked is not None
    options = _factory_options(norm.weight, norm.bias, norm.running_mean)
    kind = _BACK[getattr(norm, "_unsynchronized", type(norm))]
    new = kind(norm.num_features, norm.eps, norm.momentum, affine, tracks, **options)
    for name in ("weight", "bias") if affine else ():
        old, filled = getattr(norm, name), getattr(new, name)
        # Runtimes need both. A constant 1 or 0 takes the place of one that the layer does not have.
        setattr(new, name, filled.requires_grad_(False) if old is None else parameters.of(old, filled.dtype))
    if tracks:
        with torch.no_grad():
            var = _wide(norm.running_std).square() - norm.eps
            # std is at least sqrt(eps) but for the rounding of its dtype.
            if not var.is_meta and (var < -8 * torch.finfo(norm.running_std.dtype).eps * norm.eps).any():
                raise ValueError(
                    f"renorm.revert: running_std of {path!r} is below sqrt(eps), which BatchNorm cannot represent"
                )
            new.running_mean.copy_(norm.running_mean)
            new.running_var.copy_(var.clamp(min=0))
            new.num_batches_tracked.copy_(norm.num_batches_tracked)
    return new


def revert(model: nn.Module, include: Patterns = "*", exclude: Patterns = ()) -> nn.Module:
    """Replaces every Batch Renorm layer by BatchNorm, in place, and returns the model: for exporters and runtimes that
    have no Batch Renorm. Inference is unchanged.

    BatchRenorm and SyncBatchRenorm, of any rank, become renorm.convert.BatchNorm, of any rank; after convert_sync() a
    layer becomes what it would have become before. A ReLU that convert() fused is a module again; another
    fused ReLU becomes part of a Sequential of norm and ReLU in the layer's place. After an error the model is as it
    was.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), renorm.BatchRenorm1d(3, activation="relu"))
    >>> [type(module).__name__ for module in renorm.revert(model)[1]]
    ['BatchNorm1d', 'ReLU']
    """
    check_module("revert", model)
    found = places_of(model, lambda module: isinstance(module, BatchRenorm))
    if not found:
        raise ValueError("renorm.revert: the model has no Batch Renorm layer")
    plans, parameters = [], _Parameters()
    for norm, places in _select("revert", found, include, exclude).items():
        path = places[0][0]
        if type(norm) not in _BACK:
            raise TypeError(f"renorm.revert: {path!r} is a {type(norm).__name__}, a class of your own; exclude it")
        _check_plain("revert", path, norm)
        new, relu = _to_batch_norm(path, norm, parameters), None
        if norm.activation == "relu":
            relu = _next_in_sequential(places, FusedReLU)
            if relu is None:
                norm_and_relu = nn.Sequential()
                norm_and_relu.add_module("norm", new)
                norm_and_relu.add_module("relu", nn.ReLU())
                new = norm_and_relu
        plans.append((norm, places, new, relu))
    for norm, places, new, relu in plans:
        _copy_state(norm, new, type(norm)(1))
        model = put(model, places, new)
        if relu is not None:
            sequence, name = relu
            old = sequence._modules[name]
            sequence._modules[name] = nn.ReLU(old.inplace)
            _copy_state(old, sequence._modules[name], FusedReLU())
    return model


def _to_sync(norm: BatchRenorm, process_group: Any) -> SyncBatchRenorm:
    """A SyncBatchRenorm with everything that `norm` has: the same tensors, options, hooks and attributes."""
    new = SyncBatchRenorm.__new__(SyncBatchRenorm)
    new.__dict__.update({name: copy(value) if isinstance(value, dict) else value for name, value in norm.__dict__.items()})
    new.process_group = process_group
    new._unsynchronized = getattr(norm, "_unsynchronized", type(norm))
    _give_hooks_to(new)
    return new


def convert_sync(model: nn.Module, process_group: Any = None) -> nn.Module:
    """Replaces every Batch Renorm layer by SyncBatchRenorm, in place, and returns the model: in training the processes of
    `process_group`, by default all, then form one normalization group. Parameters, averages, options, hooks and the
    step are kept.

    >>> import renorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    >>> type(renorm.convert_sync(renorm.convert(model))[1]).__name__
    'SyncBatchRenorm'

    A layer with a group_size is an error, because a group cannot be both smaller and larger than a batch. After an
    error the model is as it was.
    """
    check_module("convert_sync", model)
    found = places_of(model, lambda module: isinstance(module, BatchRenorm))
    if not found:
        raise ValueError("renorm.convert_sync: the model has no Batch Renorm layer; renorm.convert(model) makes them")
    for norm, places in found.items():
        path = places[0][0]
        if type(norm) not in _BACK:
            raise TypeError(f"renorm.convert_sync: {path!r} is a {type(norm).__name__}, a class of your own")
        _check_plain("convert_sync", path, norm)
        if norm.group_size != 0:
            raise ValueError(f"renorm.convert_sync: group_size of {path!r} must be 0, got {norm.group_size}")
    for norm, places in found.items():
        model = put(model, places, _to_sync(norm, process_group))
    return model
