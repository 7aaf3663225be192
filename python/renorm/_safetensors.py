"""Reads safetensors files: 8 bytes of header length, a JSON header, then the bytes of the tensors. No code is run."""
import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import torch
from torch import Tensor

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}
_SIZES = {dtype: torch.empty((), dtype=dtype).element_size() for dtype in _DTYPES.values()}
_MAX_HEADER = 100_000_000


def parse_json(text: bytes, where: str) -> Any:
    """The JSON value of `text`. Repeated names are refused. Raises ValueError "WHERE: ..."."""

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name is repeated")
        return dict(pairs)

    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON: {error}") from None


def _header(data: bytes, file: str) -> Tuple[Dict[str, Any], int]:
    """The header and the place where the bytes of the tensors begin."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > _MAX_HEADER or data[8:9] != b"{":
        raise ValueError(f"{file}: not a safetensors file")
    if length > len(data) - 8:
        raise ValueError(f"{file}: the header has {length} bytes, but only {len(data) - 8} follow: truncated")
    return parse_json(data[8:8 + length], file), 8 + length


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _tensor(name: str, entry: Any, data: bytes, begin: int, file: str) -> Tuple[int, int, Tensor]:
    """(first byte, last byte + 1, tensor) of an entry of the header."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{file}: tensor {name!r} must have dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError(f"{file}: tensor {name!r} has the unknown dtype {dtype!r}")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or len(numbers) > 64 or not all(_is_count(number) for number in numbers):
            raise ValueError(f"{file}: shape and data_offsets of tensor {name!r} must be lists of whole numbers")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= len(data) - begin:
        raise ValueError(f"{file}: tensor {name!r} lies outside of the file")
    size = _SIZES[_DTYPES[dtype]]
    for number in shape:
        size *= number
    if size != offsets[1] - offsets[0]:
        raise ValueError(f"{file}: tensor {name!r} has {offsets[1] - offsets[0]} bytes, shape and dtype need {size}")
    content = bytearray(data[begin + offsets[0]:begin + offsets[1]])  # its own memory, aligned
    if size == 0:
        return offsets[0], offsets[1], torch.empty(shape, dtype=_DTYPES[dtype])
    if dtype == "BOOL":
        return offsets[0], offsets[1], torch.frombuffer(content, dtype=torch.uint8).ne(0).reshape(shape)
    return offsets[0], offsets[1], torch.frombuffer(content, dtype=_DTYPES[dtype]).reshape(shape)


def parse(data: bytes, file: str) -> Tuple[Dict[str, Tensor], Dict[str, str]]:
    """The tensors by name, and the metadata. `file` starts the messages. Raises ValueError."""
    header, begin = _header(data, file)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{file}: the metadata must be texts")
    found = {name: _tensor(name, entry, data, begin, file) for name, entry in header.items()}
    end = 0
    for first, last, _ in sorted(found.values(), key=lambda item: item[:2]):
        if first != end:
            raise ValueError(f"{file}: the tensors overlap or leave a gap at byte {end} of the data")
        end = last
    if end != len(data) - begin:
        raise ValueError(f"{file}: the last {len(data) - begin - end} bytes belong to no tensor")
    return {name: tensor for name, (_, _, tensor) in found.items()}, metadata


def read(path: Path) -> Tuple[Dict[str, Tensor], Dict[str, str]]:
    """parse() of a file. Raises OSError, ValueError."""
    return parse(path.read_bytes(), str(path))
