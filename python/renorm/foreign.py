"""Weights and averages of other implementations of Batch Renorm and batchnorm."""
from collections.abc import Mapping, Sequence
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from ._checks import check_module, checked_option
from .modules import BatchRenorm


class _Source(NamedTuple):
    """The names and conventions of an implementation."""

    mean: str
    variance: str = ""  # becomes sqrt(variance + eps)
    std: str = ""  # is copied
    weight: str = "weight"
    bias: str = "bias"
    count: str = ""  # position in the clip schedule
    ignored: Tuple[str, ...] = ()
    eps: Optional[float] = None  # default; None: that of the layer
    eps_is_added_to_std: bool = False
    momentum_of_old: bool = False  # momentum is the weight of the old value
    whole_model: bool = True  # a PyTorch state dict: the tensors of other layers are loaded as they are


_SOURCES = {
    "batchnorm": _Source("running_mean", variance="running_var", ignored=("num_batches_tracked",)),
    "keras": _Source(
        "moving_mean", variance="moving_variance", std="moving_stddev", weight="gamma", bias="beta", eps=1e-3,
        ignored=("renorm_mean", "renorm_stddev", "renorm_mean_weight", "renorm_stddev_weight"),
        momentum_of_old=True, whole_model=False
    ),
    "ludvb": _Source(
        "running_mean", std="running_std", count="num_batches_tracked", eps=1e-3, eps_is_added_to_std=True
    ),
    "sb3": _Source("ra_mean", variance="ra_var", weight="scale", count="steps", eps=1e-3),
    "sbx": _Source(
        "mean", variance="var", weight="scale", count="steps", eps=1e-3, ignored=("r_max", "d_max"),
        momentum_of_old=True, whole_model=False
    ),
    "torchrl": _Source("running_mean", variance="running_var", count="num_batches_tracked"),
}
# The first that fits names the source. The keys of "torchrl" are those of "batchnorm".
_SIGNS = (
    ("moving_mean", "keras"), ("ra_mean", "sb3"), ("running_std", "ludvb"), ("running_var", "batchnorm"), ("var", "sbx")
)
_KERAS_ORDER = ("gamma", "beta", "moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev")
_KERAS_NAMES = {*_KERAS_ORDER, *_SOURCES["keras"].ignored}
_FLAX_COLLECTIONS = {"params", "batch_stats"}


def _dotted(key: str) -> str:
    """Keras' "bn/gamma:0" becomes "bn.gamma"."""
    leaf = key.rpartition("/")[2].partition(":")[0]
    return key.partition(":")[0].replace("/", ".") if leaf in _KERAS_NAMES else key


def _flat(state: Any, prefix: str = "") -> Dict[str, Any]:
    """Nested mappings become names with dots."""
    result: Dict[str, Any] = {}
    for key, value in state.items():
        name = prefix + _dotted(str(key))
        for path, item in _flat(value, name + ".").items() if isinstance(value, Mapping) else [(name, value)]:
            if path in result:
                raise KeyError(f"renorm.load_foreign: {path!r} is given twice")
            result[path] = item
    return result


def _entries(state_dict: Any) -> Dict[str, Any]:
    """Names and values, from a dict, nested dicts, flax's collections or the list of Keras' get_weights()."""
    if isinstance(state_dict, Sequence) and not isinstance(state_dict, (str, bytes)):
        if len(state_dict) not in (5, 7):
            raise ValueError(
                "renorm.load_foreign: a list must be the 7 arrays of a Keras layer's get_weights() (5 without gamma "
                f"and beta), got {len(state_dict)}; use a dict by names"
            )
        return dict(zip(_KERAS_ORDER[-len(state_dict):], state_dict))
    if not isinstance(state_dict, Mapping):
        kind = type(state_dict).__name__
        raise TypeError(f"renorm.load_foreign: state_dict must be a mapping or a list of arrays, got {kind}")
    if "batch_stats" in state_dict and set(state_dict) <= _FLAX_COLLECTIONS:
        result: Dict[str, Any] = {}
        for collection in state_dict.values():
            result.update(_flat(collection))
        return result
    return _flat(state_dict)


def _only_layer(entries: Dict[str, Any]) -> Dict[str, Any]:
    """The entries of one layer without the prefix that all share."""
    prefixes = {name.rpartition(".")[0] for name in entries}
    return {name.rpartition(".")[2]: value for name, value in entries.items()} if len(prefixes) == 1 else entries


def _source_of(keys: List[str]) -> str:
    leaves = {key.rpartition(".")[2] for key in keys}
    for leaf, source in _SIGNS:
        if leaf in leaves:
            return source
    some = ", ".join(repr(key) for key in sorted(keys)[:4])
    raise ValueError(f"renorm.load_foreign: no known source has the keys {some}; pass source=")


def _as_tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        if value.is_meta:
            raise ValueError(f"renorm.load_foreign: {name!r} has no values: it is on the meta device")
        return value.detach()
    import numpy

    try:
        return torch.as_tensor(numpy.array(value, dtype=numpy.float64))
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise ValueError(f"renorm.load_foreign: {name!r} must be an array of numbers, got {kind}") from None


class _Reader:
    """Takes the values of one layer from the entries, checked."""

    def __init__(self, entries: Dict[str, Any], prefix: str, layer: BatchRenorm) -> None:
        self.entries = entries
        self.prefix = prefix
        self.channels = layer.num_features
        self.dtype = layer.running_mean.dtype if layer.running_mean is not None else torch.float32
        self.used: List[str] = []

    def has(self, key: str) -> bool:
        return key != "" and self.prefix + key in self.entries

    def name(self, key: str) -> str:
        return self.prefix + key

    def values(self, key: str) -> Tensor:
        name = self.name(key)
        if name not in self.entries:
            raise KeyError(f"renorm.load_foreign: {name!r} is missing")
        self.used.append(name)
        value = _as_tensor(self.entries[name], name)
        if list(value.shape) != [self.channels]:
            raise ValueError(f"renorm.load_foreign: {name!r} has shape {list(value.shape)}, expected [{self.channels}]")
        value = value.to("cpu", torch.float64)
        if not value.to(self.dtype).isfinite().all():
            raise ValueError(f"renorm.load_foreign: {name!r} has a value that is not finite in {self.dtype}")
        return value

    def count(self, key: str) -> int:
        name = self.name(key)
        self.used.append(name)
        value = _as_tensor(self.entries[name], name)
        if value.numel() != 1 or not 0 <= float(value) < 2**53 or float(value) != int(value):
            raise ValueError(f"renorm.load_foreign: {name!r} must be one whole number of at least 0")
        return int(value)

    def ignore(self, key: str) -> None:
        if self.has(key):
            self.used.append(self.name(key))


def _parameter(reader: _Reader, key: str, held: Optional[Tensor], default: float, remedy: str) -> Optional[Tensor]:
    """The new values of a weight or bias. A layer without it takes only what has no effect."""
    if held is not None:
        if not reader.has(key):
            raise KeyError(f"renorm.load_foreign: {reader.name(key)!r} is missing; {remedy}")
        return reader.values(key)
    if reader.has(key) and not (reader.values(key) == default).all():
        raise ValueError(
            f"renorm.load_foreign: {reader.name(key)!r} must be all {default:g}, because the layer does not have it"
        )
    return None


def _std(reader: _Reader, source: _Source, eps: float) -> Tensor:
    if reader.has(source.std):
        reader.ignore(source.variance)
        std = reader.values(source.std)
        if not (std.to(reader.dtype) > 0).all():
            raise ValueError(
                f"renorm.load_foreign: {reader.name(source.std)!r} has a value that is not above 0 in {reader.dtype}"
            )
        return std
    variance = reader.values(source.variance or source.std)
    if not (variance >= 0).all():
        raise ValueError(f"renorm.load_foreign: {reader.name(source.variance)!r} has a value below 0")
    return (variance + eps).sqrt()


class _Plan(NamedTuple):
    layer: BatchRenorm
    mean: Tensor
    std: Tensor
    weight: Optional[Tensor]
    bias: Optional[Tensor]
    count: Optional[int]


def _plan(layer: BatchRenorm, reader: _Reader, source: _Source, eps: float) -> _Plan:
    if layer.running_mean is None:
        raise ValueError(f"renorm.load_foreign: the layer {reader.prefix[:-1]!r} has no averages")
    no_weight = "a layer without it needs scale=False"
    no_bias = "for a layer without it, add zeros"
    mean, std = reader.values(source.mean), _std(reader, source, eps)
    weight = _parameter(reader, source.weight, layer.weight, 1.0, no_weight)
    bias = _parameter(reader, source.bias, layer.bias, 0.0, no_bias)
    count = reader.count(source.count) if reader.has(source.count) else None
    if source is _SOURCES["batchnorm"] and layer.momentum is None and reader.has("num_batches_tracked"):
        count = reader.count("num_batches_tracked")  # the divisor of a cumulative average
    for key in source.ignored:
        reader.ignore(key)
    return _Plan(layer, mean, std, weight, bias, count)


def _others(model: nn.Module, entries: Dict[str, Any], norms: List[str]) -> List[Tuple[Tensor, Tensor]]:
    """(tensor of the model, its new value) for everything outside of the norms. `entries` has what they left."""
    inside = tuple(f"{path}." if path else "" for path in norms)
    pairs = []
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name.startswith(inside) or not isinstance(tensor, Tensor):
            continue
        if name not in entries:
            raise KeyError(f"renorm.load_foreign: {name!r} is missing")
        value = _as_tensor(entries.pop(name), name)
        if value.shape != tensor.shape:
            raise ValueError(
                f"renorm.load_foreign: {name!r} has shape {list(value.shape)}, expected {list(tensor.shape)}"
            )
        pairs.append((tensor, value))
    return pairs


def _apply(plan: _Plan, eps: float, momentum: Optional[float]) -> None:
    layer = plan.layer
    pairs = [(layer.running_mean, plan.mean), (layer.running_std, plan.std), (layer.weight, plan.weight),
             (layer.bias, plan.bias)]
    for tensor, value in pairs:
        if tensor is not None:
            tensor.copy_(value.to(tensor.dtype))
    if plan.count is not None:
        layer.num_batches_tracked.fill_(plan.count)
    layer.eps = eps
    if momentum is not None:
        layer.momentum = momentum
    layer.discard()


def _layers_of(model: nn.Module, names: Optional[Mapping]) -> Dict[str, Tuple[str, BatchRenorm]]:
    """Their name of a layer -> our path and the layer."""
    # A shared layer has an entry per path.
    modules = model.named_modules(remove_duplicate=False)
    found = {path: module for path, module in modules if isinstance(module, BatchRenorm)}
    if not found:
        raise ValueError("renorm.load_foreign: the model has no Batch Renorm layer; renorm.convert(model) makes them")
    if names is None:
        return {path: (path, layer) for path, layer in found.items()}
    for path in names.values():
        if path not in found:
            known = ", ".join(repr(one) for one in list(found)[:4])
            raise ValueError(f"renorm.load_foreign: names: no Batch Renorm layer {path!r}; layers are {known}")
    return {str(theirs).replace("/", "."): (path, found[path]) for theirs, path in names.items()}


def _options(
    source: str, eps: Optional[float], momentum: Optional[float]
) -> Tuple[_Source, Optional[float], Optional[float]]:
    """The conventions of a source, its eps (None: that of each layer), and the momentum in our convention."""
    if source not in _SOURCES:
        raise ValueError(f"renorm.load_foreign: source must be one of {', '.join(_SOURCES)}, got {source!r}")
    convention = _SOURCES[source]
    eps = convention.eps if eps is None else checked_option("renorm.load_foreign", "eps", eps)
    momentum = checked_option("renorm.load_foreign", "momentum", momentum)
    if momentum is not None and convention.momentum_of_old:
        momentum = round(1 - momentum, 15)
    return convention, eps, momentum


def load_foreign(
    model: nn.Module, state_dict: Any, source: Optional[str] = None, *, eps: Optional[float] = None,
    momentum: Optional[float] = None, names: Optional[Mapping] = None
) -> nn.Module:
    """Loads weights and averages of another implementation into a Batch Renorm layer, or into a model with such layers,
    and returns it. Inference is that of the other implementation.

    state_dict: tensors or arrays by name. Of PyTorch sources the state dict of a whole model, whose other tensors are
        loaded too. Of Keras a dict by the names of the variables, or get_weights() of one layer; of sbx flax's
        variables {"params": ..., "batch_stats": ...}.
    source: "batchnorm" (torch.nn), "keras" (renorm=True), "ludvb", "sb3" (SB3-contrib), "sbx" or "torchrl". Without it,
        the names of the entries decide; those of torchrl look like "batchnorm".
    eps, momentum: of the other layers, in their own convention. The layers get them, translated. The default eps is the
        other implementation's, of batchnorm and torchrl the layer's; without a momentum the layers keep theirs.
    names: for other names of layers: {name in state_dict: path in model}. Only these layers are read.

    >>> import renorm
    >>> layer = renorm.BatchRenorm1d(2)
    >>> arrays = {"ra_mean": [1.0, 2.0], "ra_var": [3.999, 0.249], "scale": [1.0, 1.0], "bias": [0.0, 0.0], "steps": 7}
    >>> renorm.load_foreign(layer, arrays).running_std      # sqrt(ra_var + 0.001)
    tensor([2.0000, 0.5000])

    Raises KeyError for a missing or unexpected key, ValueError for a wrong shape or value. The model is then unchanged.
    """
    check_module("load_foreign", model)
    if names is not None and not isinstance(names, Mapping):
        raise TypeError(f"renorm.load_foreign: names must be a mapping, got {names!r:.60}")
    if source is not None and not isinstance(source, str):
        raise TypeError(f"renorm.load_foreign: source must be a string, got {source!r:.60}")
    if names is not None and not names:
        raise ValueError("renorm.load_foreign: names is empty; leave it out to read all layers")
    entries = _entries(state_dict)
    if not entries:
        raise ValueError("renorm.load_foreign: state_dict is empty")
    wanted = _layers_of(model, names)
    if list(wanted) == [""]:
        entries = _only_layer(entries)
    if names is not None:
        entries = {name: value for name, value in entries.items() if name.rpartition(".")[0] in wanted}
    if source is None:
        inside = [name for name in entries if name.rpartition(".")[0] in wanted]
        source = _source_of(inside or list(entries))
    convention, eps, momentum = _options(source, eps, momentum)
    plans = []
    for theirs, (_, layer) in wanted.items():
        reader = _Reader(entries, f"{theirs}." if theirs else "", layer)
        plans.append(_plan(layer, reader, convention, layer.eps if eps is None else eps))
        entries = {name: value for name, value in entries.items() if name not in reader.used}
    whole = convention.whole_model and names is None
    others = _others(model, entries, [path for path, _ in wanted.values()]) if whole else []
    for name in entries:
        raise KeyError(f"renorm.load_foreign: unexpected {name!r}" + ("" if whole else "; only norms are read"))
    with torch.no_grad():
        for plan in plans:
            own_eps = plan.layer.eps if eps is None else eps
            # std + eps is at least eps, as sqrt(var + eps^2) is.
            _apply(plan, own_eps * own_eps if convention.eps_is_added_to_std else own_eps, momentum)
        for tensor, value in others:
            tensor.copy_(value)
    return model
