"""The nets of `renorm train` as PyTorch modules, with BatchNorm2d in the place of the norms.

resnet18, resnet50 and inception-v3 are torchvision's. The small nets are built here and in _convnet.py, with the layer
names of their files. Weights are arbitrary: the caller loads them.
"""
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from . import _convnet
from ._blocks import InputShape, classifier, unit


class Residual(nn.Module):
    """relu(two convolutions of x + x, or + a 1x1 convolution of x where the shape changes)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = unit(inputs, outputs, 3, stride)
        self.conv2 = unit(outputs, outputs, 3, relu=False)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else unit(inputs, outputs, 1, stride, relu=False)

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
            self.add_module(path, unit(width, *shape))
            width = shape[0]
        for path, shape in zip(letters, fan):
            self.add_module(path, unit(width, *shape))
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


def _inception_small(spec: Optional[str], shape: InputShape) -> nn.Module:
    stem = nn.Sequential(unit(shape.channels, 16, 3, 2), unit(16, 16, 3), unit(16, 32, 3))
    blocks = _inception_blocks(32)
    parts = OrderedDict(stem=stem, mixed=nn.Sequential(blocks), pool=nn.AdaptiveAvgPool2d(1))
    return classifier(parts, blocks["e"].outputs, shape.classes)


def _resnet_small(spec: Optional[str], shape: InputShape) -> nn.Module:
    parts: Dict[str, nn.Module] = OrderedDict(stem=unit(shape.channels, 16, 3))
    for i, (inputs, outputs) in enumerate([(16, 16), (16, 32), (32, 64)]):
        blocks = (Residual(inputs, outputs, 1 if i == 0 else 2), Residual(outputs, outputs, 1))
        parts[f"layer{i + 1}"] = nn.Sequential(*blocks)
    parts["pool"] = nn.AdaptiveAvgPool2d(1)
    return classifier(parts, 64, shape.classes)


def _torchvision(model: str) -> Any:
    try:
        import torchvision
    except ImportError:
        raise ImportError(f"renorm.load_run: the model {model} needs torchvision, which is not installed") from None
    return torchvision.models


def _with_channels(conv: nn.Conv2d, channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, bias=False)


def _resnet(name: str) -> Callable[[Optional[str], InputShape], nn.Module]:
    def make(spec: Optional[str], shape: InputShape) -> nn.Module:
        net = getattr(_torchvision(name), name)(weights=None, num_classes=shape.classes)
        if shape.channels != 3:
            net.conv1 = _with_channels(net.conv1, shape.channels)
        return net

    return make


def _inception_v3(spec: Optional[str], shape: InputShape) -> nn.Module:
    if spec not in (None, "aux"):
        raise ValueError(f"unknown option {spec!r}")
    models = _torchvision("inception-v3")
    net = models.Inception3(
        num_classes=shape.classes, aux_logits=spec == "aux", transform_input=False, init_weights=False
    )
    if shape.channels != 3:
        net.Conv2d_1a_3x3.conv = _with_channels(net.Conv2d_1a_3x3.conv, shape.channels)
    return net


Names = List[Tuple[str, str]]
_RESNET_NAMES: Names = [
    (r"^stem\.conv\.", "conv1."), (r"^stem\.norm\.", "bn1."), (r"\.(conv\d)\.conv\.", r".\1."),
    (r"\.conv(\d)\.norm\.", r".bn\1."), (r"\.shortcut\.conv\.", ".downsample.0."),
    (r"\.shortcut\.norm\.", ".downsample.1."), (r"^classifier\.", "fc."),
]
_INCEPTION_NAMES: Names = [(r"\.norm\.", ".bn.")]


class Kind(NamedTuple):
    make: Callable[[Optional[str], InputShape], nn.Module]  # the first argument is the spec
    weights: Callable[[Optional[str], InputShape], int]  # their number, or a little less
    names: Names = []  # from the names in a file to those of the module, as regular expressions
    takes_spec: bool = False


def _row(items: Callable[[Optional[str]], List[_convnet.Item]]) -> Kind:
    """A net of layers in a row. `items` parses the spec."""
    return Kind(
        lambda spec, shape: _convnet.make(items(spec), shape), lambda spec, shape: _convnet.weights(items(spec), shape),
        takes_spec=True
    )


def _weights(first: int, features: int, others: int = 0) -> Callable[[Optional[str], InputShape], int]:
    """For `first` weights of the first convolution per channel of the images, a classifier of `features` inputs, and
    `others` in the other layers."""
    return lambda spec, shape: first * shape.channels + features * shape.classes + others


KINDS = {
    "mlp": _row(_convnet.mlp_items),
    "convnet": _row(_convnet.convnet_items),
    "inception-small": Kind(_inception_small, _weights(16 * 9, 320)),
    "resnet-small": Kind(_resnet_small, _weights(16 * 9, 64)),
    "inception-v3": Kind(_inception_v3, _weights(32 * 9, 2048, 21_000_000), _INCEPTION_NAMES, takes_spec=True),
    "resnet18": Kind(_resnet("resnet18"), _weights(64 * 49, 512, 11_000_000), _RESNET_NAMES),
    "resnet50": Kind(_resnet("resnet50"), _weights(64 * 49, 2048, 23_000_000), _RESNET_NAMES),
}


def build(model: str, shape: InputShape, max_weights: int) -> Tuple[nn.Module, Names]:
    """The net of "name[:spec]" and the table of its names. Raises ValueError for a model that is unknown or has more
    than `max_weights` weights."""
    name, colon, text = model.partition(":")
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"the model {model!r} is unknown to this version")
    if colon and not kind.takes_spec:
        raise ValueError(f"the model {name} has no options, got {model!r}")
    spec = text if colon else None
    try:
        if kind.weights(spec, shape) > max_weights:
            raise ValueError("the file is too small for its weights")
        with torch.random.fork_rng(devices=[]):
            return kind.make(spec, shape), kind.names
    except ValueError as error:
        raise ValueError(f"the model {model!r} cannot be built: {error}") from None
