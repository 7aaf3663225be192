"""The nets of `renorm train` as PyTorch modules, with BatchNorm2d in the place of the norms.

resnet18, resnet50 and inception-v3 are torchvision's. The small nets are built here, with the layer names of their
files. Weights are arbitrary: the caller loads them.
"""
import re
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

Kernel = Union[int, Tuple[int, int]]


def _unit(inputs: int, outputs: int, kernel: Kernel, stride: int = 1, padding: Optional[int] = None,
          relu: bool = True) -> nn.Sequential:
    """Convolution, norm and ReLU. Without a padding the size is kept at stride 1."""
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    keep = (sides[0] // 2, sides[1] // 2) if padding is None else padding
    parts: Dict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(inputs, outputs, sides, stride, keep, bias=False), norm=nn.BatchNorm2d(outputs)
    )
    if relu:
        parts["relu"] = nn.ReLU()
    return nn.Sequential(parts)


class Residual(nn.Module):
    """relu(two convolutions of x + x, or + a 1x1 convolution of x where the shape changes)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _unit(inputs, outputs, 3, stride)
        self.conv2 = _unit(outputs, outputs, 3, relu=False)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _unit(inputs, outputs, 1, stride, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv2(self.conv1(x)) + self.shortcut(x))


class Branches(nn.Module):
    """A block of Inception v3: pooling, a chain of convolutions and a fan of parallel ones per branch; the outputs of
    all branches are concatenated."""

    def __init__(self, inputs: int, padding: int = 0) -> None:
        super().__init__()
        self.inputs = inputs
        self.padding = padding
        self.outputs = 0
        self.plan: List[Tuple[str, List[str], List[str]]] = []  # pooling, chain, fan

    def add(self, name: str, chain: Sequence[Tuple[Any, ...]] = (), fan: Sequence[Tuple[Any, ...]] = (),
            pooling: str = "") -> None:
        """`chain` and `fan` have (outputs, kernel[, stride, padding]) of each convolution."""
        numbers = [name] if len(chain) == 1 and not fan else [f"{name}_{i + 1}" for i in range(len(chain))]
        letters = [f"{name}_{len(chain) + 1}{'ab'[i]}" for i in range(len(fan))]
        width = self.inputs
        for path, shape in zip(numbers, chain):
            self.add_module(path, _unit(width, *shape))
            width = shape[0]
        for path, shape in zip(letters, fan):
            self.add_module(path, _unit(width, *shape))
        self.outputs += sum(shape[0] for shape in fan) if fan else width
        self.plan.append((pooling, numbers, letters))

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for pooling, chain, fan in self.plan:
            y = x
            if pooling == "average":
                y = nn.functional.avg_pool2d(y, 3, 1, 1)
            elif pooling == "max":
                y = nn.functional.max_pool2d(y, 3, 2, self.padding)
            for name in chain:
                y = self._modules[name](y)
            outputs += [self._modules[name](y) for name in fan] if fan else [y]
        return torch.cat(outputs, 1)


def _inception_blocks(inputs: int) -> "OrderedDict[str, Branches]":
    """The blocks A to E of inception-small."""
    blocks: "OrderedDict[str, Branches]" = OrderedDict()

    def block(name: str, padding: int = 0) -> Branches:
        width = next(reversed(blocks.values())).outputs if blocks else inputs
        blocks[name] = Branches(width, padding)
        return blocks[name]

    a = block("a")
    a.add("branch1x1", [(16, 1)])
    a.add("branch5x5", [(16, 1), (16, 5)])
    a.add("branch3x3dbl", [(16, 1), (16, 3), (16, 3)])
    a.add("branch_pool", [(16, 1)], pooling="average")
    b = block("b", padding=1)
    b.add("branch3x3", [(32, 3, 2, 1)])
    b.add("branch3x3dbl", [(16, 1), (32, 3), (32, 3, 2, 1)])
    b.add("branch_pool", pooling="max")
    c = block("c")
    c.add("branch1x1", [(32, 1)])
    c.add("branch7x7", [(16, 1), (16, (1, 7)), (32, (7, 1))])
    c.add("branch7x7dbl", [(16, 1), (16, (7, 1)), (16, (1, 7)), (16, (7, 1)), (32, (1, 7))])
    c.add("branch_pool", [(32, 1)], pooling="average")
    d = block("d", padding=1)
    d.add("branch3x3", [(32, 1), (48, 3, 2, 1)])
    d.add("branch7x7x3", [(32, 1), (32, (1, 7)), (32, (7, 1)), (32, 3, 2, 1)])
    d.add("branch_pool", pooling="max")
    e = block("e")
    e.add("branch1x1", [(64, 1)])
    e.add("branch3x3", [(64, 1)], [(64, (1, 3)), (64, (3, 1))])
    e.add("branch3x3dbl", [(64, 1), (64, 3)], [(64, (1, 3)), (64, (3, 1))])
    e.add("branch_pool", [(32, 1)], pooling="average")
    return blocks


def _classifier(parts: Dict[str, nn.Module], features: int, classes: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(parts, flatten=nn.Flatten(), classifier=nn.Linear(features, classes)))


def _inception_small(spec: Optional[str], channels: int, classes: int) -> nn.Module:
    stem = nn.Sequential(_unit(channels, 16, 3, 2), _unit(16, 16, 3), _unit(16, 32, 3))
    blocks = _inception_blocks(32)
    parts = OrderedDict(stem=stem, mixed=nn.Sequential(blocks), pool=nn.AdaptiveAvgPool2d(1))
    return _classifier(parts, blocks["e"].outputs, classes)


def _resnet_small(spec: Optional[str], channels: int, classes: int) -> nn.Module:
    parts: Dict[str, nn.Module] = OrderedDict(stem=_unit(channels, 16, 3))
    for i, (inputs, outputs) in enumerate([(16, 16), (16, 32), (32, 64)]):
        blocks = (Residual(inputs, outputs, 1 if i == 0 else 2), Residual(outputs, outputs, 1))
        parts[f"layer{i + 1}"] = nn.Sequential(*blocks)
    parts["pool"] = nn.AdaptiveAvgPool2d(1)
    return _classifier(parts, 64, classes)


_CONVNET = "16/2,32/2,32,64/2,64,64,pool,128,128"
_ITEM = re.compile(r"(?:(\d{1,2})x(\d{1,2}):)?(\d{1,5})(?:/(\d))?")


def _convnet_plan(spec: Optional[str], channels: int) -> List[Any]:
    """A word or (inputs, outputs, kernel, stride) per item."""
    plan: List[Any] = []
    items = (_CONVNET if spec is None else spec).split(",")
    if len(items) > 1000:
        raise ValueError(f"at most 1000 items are allowed, got {len(items)}")
    for item in items:
        match = _ITEM.fullmatch(item)
        if match is not None:
            height, width, outputs, stride = match.groups()
            side = 1 if "pool" in plan else 3
            kernel = (int(height or side), int(width or side))
            if kernel[0] % 2 == 0 or kernel[1] % 2 == 0 or int(outputs) == 0 or stride == "0":
                raise ValueError(f"its item {item!r} is not a convolution")
            plan.append((channels, int(outputs), kernel, int(stride or 1)))
            channels = int(outputs)
        elif item in ("max", "avg", "pool") and "pool" not in plan:
            plan.append(item)
        else:
            raise ValueError(f"its item {item!r} is unknown")
    return plan if "pool" in plan else plan + ["pool"]


_POOLS: Dict[str, Callable[[], nn.Module]] = {
    "max": lambda: nn.MaxPool2d(2), "avg": lambda: nn.AvgPool2d(2), "pool": lambda: nn.AdaptiveAvgPool2d(1)
}


def _convnet(spec: Optional[str], channels: int, classes: int) -> nn.Module:
    parts: Dict[str, nn.Module] = OrderedDict()
    convolutions = 0
    for i, item in enumerate(_convnet_plan(spec, channels)):
        if isinstance(item, str):
            parts[f"{item}{i}"] = _POOLS[item]()
        else:
            convolutions += 1
            parts[f"conv{convolutions}"] = _unit(*item)
            channels = item[1]
    return _classifier(parts, channels, classes)


def _torchvision(model: str) -> Any:
    try:
        import torchvision
    except ImportError:
        raise ImportError(f"renorm.load_run: the model {model} needs torchvision, which is not installed") from None
    return torchvision.models


def _with_channels(conv: nn.Conv2d, channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, bias=False)


def _resnet(name: str) -> Callable[[Optional[str], int, int], nn.Module]:
    def make(spec: Optional[str], channels: int, classes: int) -> nn.Module:
        net = getattr(_torchvision(name), name)(weights=None, num_classes=classes)
        if channels != 3:
            net.conv1 = _with_channels(net.conv1, channels)
        return net

    return make


def _inception_v3(spec: Optional[str], channels: int, classes: int) -> nn.Module:
    if spec not in (None, "aux"):
        raise ValueError(f"unknown option {spec!r}")
    models = _torchvision("inception-v3")
    net = models.Inception3(num_classes=classes, aux_logits=spec == "aux", transform_input=False, init_weights=False)
    if channels != 3:
        net.Conv2d_1a_3x3.conv = _with_channels(net.Conv2d_1a_3x3.conv, channels)
    return net


_RESNET_NAMES = [
    (r"^stem\.conv\.", "conv1."), (r"^stem\.norm\.", "bn1."), (r"\.(conv\d)\.conv\.", r".\1."),
    (r"\.conv(\d)\.norm\.", r".bn\1."), (r"\.shortcut\.conv\.", ".downsample.0."),
    (r"\.shortcut\.norm\.", ".downsample.1."), (r"^classifier\.", "fc."),
]
_INCEPTION_NAMES = [(r"\.norm\.", ".bn.")]


class Kind(NamedTuple):
    make: Callable[[Optional[str], int, int], nn.Module]  # spec, channels, classes
    names: List[Tuple[str, str]]  # from the names in a file to those of the module, as regular expressions
    per_channel: int  # weights of the first convolution per channel of the images
    features: int  # inputs of the classifier
    takes_spec: bool = False
    others: int = 0  # weights of the other layers, rounded down


KINDS = {
    "convnet": Kind(_convnet, [], 0, 0, takes_spec=True),
    "inception-small": Kind(_inception_small, [], 16 * 9, 320),
    "resnet-small": Kind(_resnet_small, [], 16 * 9, 64),
    "inception-v3": Kind(_inception_v3, _INCEPTION_NAMES, 32 * 9, 2048, takes_spec=True, others=21_000_000),
    "resnet18": Kind(_resnet("resnet18"), _RESNET_NAMES, 64 * 49, 512, others=11_000_000),
    "resnet50": Kind(_resnet("resnet50"), _RESNET_NAMES, 64 * 49, 2048, others=23_000_000),
}


def _weights(kind: Kind, spec: Optional[str], channels: int, classes: int) -> int:
    """The number of weights, or a little less."""
    if kind.make is not _convnet:
        return kind.per_channel * channels + kind.features * classes + kind.others
    convolutions = [item for item in _convnet_plan(spec, channels) if not isinstance(item, str)]
    weights = sum(inputs * outputs * kernel[0] * kernel[1] for inputs, outputs, kernel, _ in convolutions)
    return weights + (convolutions[-1][1] if convolutions else channels) * classes


def build(model: str, channels: int, classes: int, max_weights: int) -> Tuple[nn.Module, List[Tuple[str, str]]]:
    """The net of "name[:spec]" and the table of its names. Raises ValueError for a model that is unknown or has more
    than `max_weights` weights."""
    name, colon, spec = model.partition(":")
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"the model {model!r} is unknown to this version")
    if colon and not kind.takes_spec:
        raise ValueError(f"the model {name} has no options, got {model!r}")
    try:
        if _weights(kind, spec if colon else None, channels, classes) > max_weights:
            raise ValueError("the file is too small for its weights")
        with torch.random.fork_rng(devices=[]):
            return kind.make(spec if colon else None, channels, classes), kind.names
    except ValueError as error:
        raise ValueError(f"the model {model!r} cannot be built: {error}") from None
