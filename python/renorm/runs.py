"""Models of `renorm train` and `renorm export` as PyTorch modules."""
import hashlib
import math
import os
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple, Union

import torch
from torch import Tensor, nn

from . import _nets, _safetensors
from ._blocks import InputShape
from .clip import ClipSchedule
from .convert import convert
from .model import layers

_MODEL, _AVERAGE, _STATE, _SUMS = "model.safetensors", "average.safetensors", "state.json", "SHA256SUMS"
_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_-][A-Za-z0-9._-]*)")
_STEP = re.compile(r"step-(\d{1,15})")
_NORMS = ("renorm", "batchnorm", "native", "groupnorm")
_CHANNELS_PER_GROUP = 16
_MAX_SIDE = 4096
_MAX_VALUES = 3 * _MAX_SIDE * _MAX_SIDE  # of an image


@dataclass(frozen=True)
class ModelCard:
    """What a loaded model is, and the input that it takes."""

    model: str  #: "resnet18", "convnet:8/2,16", "mlp:512,512"
    classes: Tuple[str, ...]  #: the names of the outputs
    channels: int
    height: int
    width: int
    mean: Tuple[float, ...]  #: per channel, of bytes / 255
    std: Tuple[float, ...]
    centre: float  #: the share of an image's shorter side that is the input
    norm: str  #: "renorm", "batchnorm", "native" or "groupnorm"
    weights: str  #: "averaged" or "raw"
    step: int  #: of training
    folded: bool  #: convolutions with a bias instead of norms
    config: Dict[str, Any] = field(default_factory=dict, repr=False)  #: every setting of a run; empty for a file

    def standardize(self, images: Tensor) -> Tensor:
        """The model's input from bytes [..., channels, height, width]: (byte / 255 - mean) / std, as float."""
        if images.dtype != torch.uint8 or images.dim() < 3 or images.shape[-3] != self.channels:
            raise ValueError(
                f"ModelCard.standardize: images must be uint8 [..., {self.channels}, height, width], got "
                f"{images.dtype} {list(images.shape)}"
            )
        mean, std = (torch.tensor(values, dtype=torch.float64).reshape(-1, 1, 1) for values in (self.mean, self.std))
        table = (torch.arange(256, dtype=torch.float64).reshape(1, 1, 256) / 255 - mean) / std  # [channel, 1, byte]
        table = table.to(torch.float32).to(images.device)
        index = images.long()
        planes = [table[c, 0][index.select(-3, c)] for c in range(self.channels)]
        return torch.stack(planes, dim=-3)


class _Fields:
    """Typed access to a JSON object. Raises ValueError "WHERE: ..."."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: must be a JSON object")
        self.value = value
        self.where = where

    def get(self, key: str, kind: type) -> Any:
        found = self.value.get(key)
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind or (kind is float and not math.isfinite(found)):
            raise ValueError(f"{self.where}: {key!r} is missing or not of the type {kind.__name__}")
        return found

    def count(self, key: str, low: int, high: int) -> int:
        found = self.get(key, int)
        if not low <= found <= high:
            raise ValueError(f"{self.where}: {key!r} must be from {low} to {high}, got {found}")
        return found

    def tuple(self, key: str, kind: type) -> Tuple[Any, ...]:
        found = self.get(key, list)
        return tuple(_Fields({key: item}, self.where).get(key, kind) for item in found)

    def inner(self, key: str) -> "_Fields":
        return _Fields(self.value.get(key), f"{self.where}: {key!r}")

    def choice(self, key: str, known: Tuple[str, ...]) -> str:
        found = self.get(key, str)
        if found not in known:
            raise ValueError(f"{self.where}: {key!r} must be one of {', '.join(known)}, got {found!r}")
        return found


@dataclass(frozen=True)
class _Norm:
    """The options of the norms beyond the kind."""

    scale: bool
    eps: float
    momentum: float
    clip: ClipSchedule


def _input_of(fields: _Fields) -> Dict[str, Any]:
    channels = fields.count("channels", 1, 65536)
    mean, std = fields.tuple("mean", float), fields.tuple("std", float)
    if len(mean) != channels or len(std) != channels or not all(value > 0 for value in std):
        raise ValueError(f"{fields.where}: 'mean' and 'std' must have {channels} values, 'std' above 0")
    height, width = fields.count("height", 1, _MAX_SIDE), fields.count("width", 1, _MAX_SIDE)
    values = channels * height * width
    if values > _MAX_VALUES:
        raise ValueError(f"{fields.where}: 'channels' must give images of at most {_MAX_VALUES} values, got {values}")
    centre = fields.get("centre", float)
    return dict(channels=channels, height=height, width=width, mean=mean, std=std, centre=centre)


def _clip_of(text: str, steps: int) -> ClipSchedule:
    """The schedule of the setting `clip` in a run of `steps` steps."""

    def step(point: str) -> int:
        share = point.endswith("%")
        return math.floor(float(point[:-1]) / 100 * steps + 0.5) if share else int(point)

    if text.startswith("paper"):
        return ClipSchedule.paper(int(text[6:]) if text[5:6] == "@" else steps)
    if ":" not in text:
        r_max, d_max = text.split(",")
        return ClipSchedule.constant(float(r_max), float(d_max))
    parts = dict(part.split(":") for part in text.split(","))
    (r_max, r_step), (d_max, d_step) = parts["r"].split("@"), parts["d"].split("@")
    return ClipSchedule.ramp(step(parts.get("hold", "0")), float(r_max), step(r_step), float(d_max), step(d_step))


def _from_file(data: bytes, file: str) -> Tuple[ModelCard, _Norm, Dict[str, Tensor]]:
    """An exported file."""
    tensors, metadata = _safetensors.parse(data, file)
    if "renorm" not in metadata:
        raise ValueError(f"{file}: no model card; only files written by 'renorm export' have one")
    where = f"{file}: model card"
    card = _Fields(_safetensors.parse_json(metadata["renorm"].encode(), where), where)
    if card.get("format_version", int) != 1:
        raise ValueError(f"{where}: format_version {card.value['format_version']} is unknown to this version")
    norm = card.inner("norm")
    kind = norm.choice("kind", _NORMS)
    # The card has no schedule. The training of the model is over, and so are its limits' ramps.
    clip = ClipSchedule.constant(3.0, 5.0) if kind == "renorm" else ClipSchedule.batch_norm()
    result = ModelCard(
        model=card.get("model", str), classes=card.tuple("classes", str), norm=kind,
        weights=card.choice("weights", ("averaged", "raw")), step=card.get("step", int),
        folded=card.get("folded", bool), **_input_of(card.inner("input"))
    )
    return result, _Norm(norm.get("scale", bool), norm.get("eps", float), 0.01, clip), tensors


class _Checkpoints:
    """The folder `checkpoints` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        if not self.folder.is_dir():
            raise FileNotFoundError(f"'{folder}' is not the folder of a run: it has no folder 'checkpoints'")
        names = (path.name for path in self.folder.iterdir() if path.is_dir() and not path.is_symlink())
        self.steps = sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d{9,15}", name))

    def read(self, step: int) -> Dict[str, bytes]:
        """The files of a checkpoint, compared with their checksums. Raises ValueError."""
        folder = self.path_of(step)
        files: Dict[str, bytes] = {}
        try:
            lines = (folder / _SUMS).read_bytes().decode("ascii", "replace").splitlines()
            for line in lines:
                match = _SUM_LINE.fullmatch(line)
                if match is None:
                    raise ValueError(f"{folder / _SUMS}: a line is not a checksum and a file name")
                data = (folder / match.group(2)).read_bytes()
                if hashlib.sha256(data).hexdigest() != match.group(1):
                    raise ValueError(f"{folder / match.group(2)}: does not match its checksum: altered or truncated")
                files[match.group(2)] = data
        except FileNotFoundError as error:
            raise ValueError(f"{error.filename}: missing in the checkpoint") from None
        for name in (_STATE, _MODEL):
            if name not in files:
                raise ValueError(f"{folder / name}: not listed in {_SUMS}")
        return files

    def path_of(self, step: int) -> Path:
        return self.folder / f"step-{step:09}"

    def missing(self) -> List[str]:
        """A sentence if the link `last` names a checkpoint that is newer than all and gone."""
        link = self.folder / "last"
        match = _STEP.fullmatch(os.readlink(link)) if link.is_symlink() else None
        if match is None or int(match.group(1)) <= max(self.steps, default=-1):
            return []
        return [f"'{self.path_of(int(match.group(1)))}' is missing"]

    def newest(self) -> Tuple[int, Dict[str, bytes]]:
        """The newest valid one. Newer ones that are damaged or missing give a warning."""
        refused = self.missing()
        for step in reversed(self.steps):
            try:
                files = self.read(step)
            except ValueError as error:
                refused.append(str(error))
                continue
            for sentence in refused:
                warnings.warn(f"renorm.load_run: {sentence}; using step {step}", stacklevel=5)
            return step, files
        what = f"no good checkpoint: {'; '.join(refused)}" if refused else "no checkpoint"
        raise FileNotFoundError(f"'{self.folder}' has {what}")

    def find(self, name: str) -> Tuple[Path, Dict[str, bytes]]:
        """The files of "last", "best" or "step-N"."""
        match = _STEP.fullmatch(name)
        if match is None:
            step, files = self.newest()
            if name == "best":
                best = _state_of(files, self.path_of(step)).value.get("best")
                step = best.get("step", -1) if isinstance(best, dict) else -1
        else:
            step, files = int(match.group(1)), {}
        if step not in self.steps:
            known = ", ".join(map(str, self.steps)) or "none"
            raise FileNotFoundError(f"'{self.folder}' has no checkpoint '{name}'; its steps are {known}")
        if name != "last":
            files = self.read(step)
        return self.path_of(step), files


def _state_of(files: Dict[str, bytes], folder: Path) -> _Fields:
    where = str(folder / _STATE)
    state = _Fields(_safetensors.parse_json(files[_STATE], where), where)
    if state.get("format_version", int) != 2:
        raise ValueError(f"{where}: format_version {state.value['format_version']} is unknown to this version")
    return state


def _from_run(folder: Path, checkpoint: str, averaged: bool) -> Tuple[ModelCard, _Norm, Dict[str, Tensor], str, int]:
    """The folder of a run: also the file of the weights and its size."""
    found, files = _Checkpoints(folder).find(checkpoint)
    state = _state_of(files, found)
    config = state.inner("config")
    averaged = averaged and config.get("ema-decay", float) > 0
    name = _AVERAGE if averaged else _MODEL
    if name not in files:
        raise ValueError(f"{found / name}: missing in the checkpoint")
    tensors, _ = _safetensors.parse(files[name], str(found / name))
    kind = config.choice("norm", _NORMS)
    clip = ClipSchedule.batch_norm()
    if kind == "renorm":
        try:
            clip = _clip_of(config.get("clip", str), config.count("steps", 1, 1 << 60))
        except (ValueError, KeyError):
            raise ValueError(f"{config.where}: 'clip' is not a schedule: {config.value.get('clip')!r}") from None
    data = state.inner("data")
    card = ModelCard(
        model=config.get("model", str), classes=data.tuple("classes", str), norm=kind,
        weights="averaged" if averaged else "raw", step=state.get("step", int), folded=False, config=config.value,
        **_input_of(data)
    )
    eps, momentum = config.get("norm-eps", float), config.get("norm-momentum", float)
    norm = _Norm(config.get("norm-scale", bool), eps, momentum, clip)
    return card, norm, tensors, str(found / name), len(files[name])


def _replace_norms(net: nn.Module, replacement: Callable[[nn.BatchNorm2d], nn.Module]) -> None:
    for module in net.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, replacement(child))


def _group_norm(channels: int, eps: float) -> nn.GroupNorm:
    """Groups of 16 channels, or of the largest divisor of 16 that divides them."""
    return nn.GroupNorm(channels // math.gcd(channels, _CHANNELS_PER_GROUP), channels, eps)


def _set_norms(net: nn.Module, card: ModelCard, norm: _Norm) -> nn.Module:
    """Gives the net, which has BatchNorm2d, the norms that were trained."""

    def trained(old: nn.BatchNorm2d) -> nn.Module:
        if card.norm == "groupnorm":
            new = _group_norm(old.num_features, norm.eps)
        else:
            new = nn.BatchNorm2d(old.num_features, norm.eps, norm.momentum)
        new.weight.requires_grad_(norm.scale)
        return new

    _replace_norms(net, trained)
    # A net such as convnet:flat has no norms, which convert() refuses.
    if card.norm in ("renorm", "batchnorm") and any(isinstance(module, nn.BatchNorm2d) for module in net.modules()):
        convert(net, clip=norm.clip, fuse_relu=True)
    for _, layer in layers(net):
        if not norm.scale:
            layer.scale = False
            layer.weight = None
    return net


def _set_folded(net: nn.Module) -> nn.Module:
    """Every convolution gets a bias, and its norm becomes an identity."""
    _replace_norms(net, lambda norm: nn.Identity())
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.bias = nn.Parameter(torch.zeros(module.out_channels))
    return net


def _renamed(name: str, table: List[Tuple[str, str]]) -> str:
    name = name.replace(".norm.batch_norm.", ".norm.")
    for pattern, new in table:
        name = re.sub(pattern, new, name)
    return name


def _load(net: nn.Module, tensors: Dict[str, Tensor], names: List[Tuple[str, str]], file: str) -> None:
    renamed = {_renamed(name, names): (name, tensor) for name, tensor in tensors.items()}
    wanted = net.state_dict()
    for name, tensor in wanted.items():
        if name not in renamed:
            raise ValueError(f"{file}: the tensor of {name!r} is missing")
        theirs, value = renamed[name]
        if value.shape != tensor.shape or value.dtype != tensor.dtype:
            raise ValueError(
                f"{file}: tensor {theirs!r} is {value.dtype} {list(value.shape)}, expected {tensor.dtype} "
                f"{list(tensor.shape)}"
            )
    for name, (theirs, _) in renamed.items():
        if name not in wanted:
            raise ValueError(f"{file}: tensor {theirs!r} is not part of the model")
    net.load_state_dict({name: value for name, (_, value) in renamed.items()})


def load_run(path: Union[str, Path], *, checkpoint: str = "last", averaged: bool = True) -> nn.Module:
    """The model of a run of `renorm train`, or of a `.safetensors` file of `renorm export`, in evaluation mode.

    Its outputs are those of `renorm predict`. `model.card` has the names of the classes and the input: size, mean and
    standard deviation. resnet18, resnet50 and inception-v3 are torchvision's classes, the other nets are Sequential.
    The norms are those of the run.

    checkpoint: of a run: "last", "best" or "step-N".
    averaged: of a run: False loads the raw weights instead of the averaged ones.

        model = renorm.load_run("runs/small")
        guesses = model(model.card.standardize(images)).argmax(1)       # images: uint8 [N, channels, height, width]

    Only numbers and names are read, no code. Raises FileNotFoundError, or ValueError with the file and what is wrong.
    """
    path = Path(path)
    if path.is_dir():
        if checkpoint not in ("last", "best") and _STEP.fullmatch(checkpoint) is None:
            raise ValueError(f"renorm.load_run: checkpoint must be 'last', 'best' or 'step-N', got {checkpoint!r}")
        card, norm, tensors, file, size = _from_run(path, checkpoint, averaged)
    else:
        if path.suffix == ".pt":
            raise ValueError(
                f"{path}: a TorchScript file is a program; load the .safetensors file of the model, or, if you trust "
                "its author, use torch.jit.load"
            )
        file, data = str(path), path.read_bytes()
        card, norm, tensors = _from_file(data, file)
        size = len(data)
        if checkpoint != "last" or (not averaged and card.weights != "raw"):
            raise ValueError(f"{path}: checkpoint and averaged need the folder of a run; a file has one set of weights")
    if not card.classes:
        raise ValueError(f"{file}: the model has no classes")
    try:
        shape = InputShape(card.channels, card.height, card.width, len(card.classes))
        net, names = _nets.build(card.model, shape, size // 4)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    net = _set_folded(net) if card.folded else _set_norms(net, card, norm)
    _load(net, tensors, names, file)
    net.card = card
    return net.eval()
