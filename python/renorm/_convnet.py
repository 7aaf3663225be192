"""The nets of `convnet[:SPEC]` and `mlp[:WIDTHS]`: layers in a row."""
import re
from collections import OrderedDict
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from torch import Tensor, nn

from ._blocks import InputShape, classifier, unit


class Flat(nn.Module):
    """All pixels of all channels as the channels of one pixel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).unsqueeze(2).unsqueeze(3)


class Convolution(NamedTuple):
    """With norm and ReLU. On one pixel a 1x1 convolution is a dense layer."""

    outputs: int
    kernel: Tuple[int, int]
    stride: int = 1


Item = Union[str, Convolution]  # a word of _WORDS or a convolution
_WORDS: Dict[str, Callable[[], nn.Module]] = {
    "max": lambda: nn.MaxPool2d(2), "avg": lambda: nn.AvgPool2d(2), "pool": lambda: nn.AdaptiveAvgPool2d(1),
    "flat": Flat,
}
_ONE_PIXEL = ("pool", "flat")  # the layers after them are dense
_CONVNET, _MLP = "16/2,32/2,32,64/2,64,64,pool,128,128", "512,512,512"
_CONVOLUTION = re.compile(r"(?:(\d{1,2})x(\d{1,2}):)?(\d{1,5})(?:/(\d))?")
_MAX_ITEMS, _MAX_OUTPUTS = 1000, 65536


def _split(spec: str) -> List[str]:
    texts = spec.split(",")
    if len(texts) > _MAX_ITEMS:
        raise ValueError(f"at most {_MAX_ITEMS} items are allowed, got {len(texts)}")
    return texts


def convnet_items(spec: Optional[str]) -> List[Item]:
    """The items of "convnet:SPEC". Exactly one of them leaves one pixel. Raises ValueError."""
    items: List[Item] = []
    is_dense = False
    for text in _split(_CONVNET if spec is None else spec):
        match = _CONVOLUTION.fullmatch(text)
        if match is not None:
            height, width, outputs, stride = match.groups()
            side = 1 if is_dense else 3
            item = Convolution(int(outputs), (int(height or side), int(width or side)), int(stride or 1))
            if not all(side % 2 for side in item.kernel) or not 1 <= item.outputs <= _MAX_OUTPUTS or item.stride == 0:
                raise ValueError(f"its item {text!r} is not a convolution")
            items.append(item)
        elif text in _WORDS and not is_dense:
            items.append(text)
            is_dense = text in _ONE_PIXEL
        else:
            raise ValueError(f"its item {text!r} is unknown")
    return items if is_dense else items + ["pool"]


def mlp_items(spec: Optional[str]) -> List[Item]:
    """The items of "mlp:WIDTHS". Raises ValueError."""
    items: List[Item] = ["flat"]
    for text in _split(_MLP if spec is None else spec):
        if re.fullmatch(r"\d{1,5}", text) is None or not 1 <= int(text) <= _MAX_OUTPUTS:
            raise ValueError(f"its width {text!r} is not a whole number from 1 to {_MAX_OUTPUTS}")
        items.append(Convolution(int(text), (1, 1)))
    return items


def _channels(items: Sequence[Item], shape: InputShape) -> List[int]:
    """The number of channels before each item, and after the last. Raises ValueError if the image vanishes."""
    channels, height, width, _ = shape
    found = [channels]
    for item in items:
        before = f"{height}x{width}"
        if isinstance(item, Convolution):
            channels, height, width = item.outputs, (height - 1) // item.stride + 1, (width - 1) // item.stride + 1
        elif item in _ONE_PIXEL:
            channels, height, width = channels * height * width if item == "flat" else channels, 1, 1
        else:
            height, width = height // 2, width // 2
        if height == 0 or width == 0:
            raise ValueError(f"its item {item!r} cannot halve an image of {before} pixels")
        found.append(channels)
    return found


def weights(items: Sequence[Item], shape: InputShape) -> int:
    """The number of weights of convolutions and classifier. Raises ValueError if the image vanishes."""
    channels = _channels(items, shape)
    count = channels[-1] * shape.classes
    for item, inputs in zip(items, channels):
        if isinstance(item, Convolution):
            count += inputs * item.outputs * item.kernel[0] * item.kernel[1]
    return count


def make(items: Sequence[Item], shape: InputShape) -> nn.Module:
    """The items in a row, and the classifier."""
    parts: Dict[str, nn.Module] = OrderedDict()
    convolutions = 0
    channels = _channels(items, shape)
    for i, (item, inputs) in enumerate(zip(items, channels)):
        if isinstance(item, Convolution):
            convolutions += 1
            parts[f"conv{convolutions}"] = unit(inputs, *item)
        else:
            parts[f"{item}{i}"] = _WORDS[item]()
    return classifier(parts, channels[-1], shape.classes)
