"""What the nets of `renorm train` have in common."""
from collections import OrderedDict
from typing import Dict, NamedTuple, Optional, Tuple, Union

from torch import nn

Kernel = Union[int, Tuple[int, int]]


class InputShape(NamedTuple):
    """The images, and the number of classes that they have."""

    channels: int
    height: int
    width: int
    classes: int


def unit(inputs: int, outputs: int, kernel: Kernel, stride: int = 1, padding: Optional[int] = None,
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


def classifier(parts: Dict[str, nn.Module], features: int, classes: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(parts, flatten=nn.Flatten(), classifier=nn.Linear(features, classes)))
