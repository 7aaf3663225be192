"""The reader of safetensors files: values of every dtype, and files that are refused.

usage: python3 safetensors_test.py
"""
import json
import struct
import tempfile
import unittest
from pathlib import Path

import torch

from renorm import _safetensors


def encode(entries, data=b"", metadata=None):
    """A safetensors file: entries are {name: (dtype, shape, begin, end)}."""
    header = {} if metadata is None else {"__metadata__": metadata}
    for name, (dtype, shape, begin, end) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Safetensors(unittest.TestCase):
    def test_values_of_every_dtype(self):
        values = {
            "F64": torch.tensor([1.5, -2.0], dtype=torch.float64), "F32": torch.tensor([[0.25, 3.0]]),
            "F16": torch.tensor([0.5], dtype=torch.float16), "BF16": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
            "I64": torch.tensor(-5), "I32": torch.tensor([7], dtype=torch.int32),
            "I16": torch.tensor([-7], dtype=torch.int16),
            "I8": torch.tensor([-1], dtype=torch.int8), "U8": torch.tensor([255], dtype=torch.uint8),
            "BOOL": torch.tensor([True, False, True]),
        }
        data, entries = b"?", {"odd": ("U8", [1], 0, 1)}  # what follows is not aligned
        for dtype, value in values.items():
            content = value.to(torch.uint8) if dtype == "BOOL" else value.reshape(-1).view(torch.uint8)
            content = bytes(content.tolist())
            entries[dtype] = (dtype, list(value.shape), len(data), len(data) + len(content))
            data += content
        entries["nothing"] = ("F32", [0, 3], len(data), len(data))
        tensors, metadata = _safetensors.parse(encode(entries, data, {"a": "b"}), "x")
        for dtype, value in values.items():
            self.assertEqual(tensors[dtype].dtype, value.dtype)
            self.assertTrue(torch.equal(tensors[dtype], value), dtype)
        self.assertEqual(list(tensors["nothing"].shape), [0, 3])
        self.assertEqual(metadata, {"a": "b"})

    def test_refused(self):
        good = {"a": ("F32", [2], 0, 8)}
        eight = bytes(8)

        def header(text):
            return struct.pack("<Q", len(text)) + text + eight

        cases = {
            "not a safetensors file": [
                b"", b"1234567", b"PK\3\4" + bytes(90), struct.pack("<Q", 1 << 40) + b"{}" + eight],
            "truncated": [encode(good, eight)[:40], struct.pack("<Q", 99) + b"{}"],
            "not valid JSON": [
                header(b"{]"), header(b'{"a": 1, "a": 2}'), header(b'{"\xff": 1}'), header(b'{"a":' * 20000)],
            "must have dtype, shape and data_offsets": [header(b'{"a": 1}'), header(b'{"a": {"dtype": "F32"}}')],
            "unknown dtype": [encode({"a": ("F31", [2], 0, 8)}, eight), header(
                b'{"a": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}}')],
            "lists of whole numbers": [
                encode({"a": ("F32", [-2], 0, 8)}, eight), encode({"a": ("F32", [2.0], 0, 8)}, eight),
                encode({"a": ("F32", [True], 0, 8)}, eight), encode({"a": ("F32", 2, 0, 8)}, eight),
                encode({"a": ("F32", [1] * 65, 0, 8)}, eight), encode({"a": ("F32", [1 << 70], 0, 8)}, eight)],
            "lies outside": [encode({"a": ("F32", [4], 0, 16)}, eight), encode({"a": ("F32", [2], 8, 0)}, eight)],
            "shape and dtype need": [encode({"a": ("F32", [3], 0, 8)}, eight), encode(
                {"a": ("F32", [1 << 40, 1 << 40], 0, 8)}, eight)],
            "overlap or leave a gap": [encode({"a": ("F32", [1], 4, 8)}, eight), encode(
                {"a": ("F32", [2], 0, 8), "b": ("F32", [1], 4, 8)}, eight)],
            "belong to no tensor": [encode(good, eight + b"1")],
            "metadata must be texts": [encode(good, eight, {"a": 1}), encode(good, eight, ["a"])],
        }
        for message, files in cases.items():
            for data in files:
                with self.subTest(message=message, data=data[:60]):
                    with self.assertRaisesRegex(ValueError, f"^the file: .*{message}") as caught:
                        _safetensors.parse(data, "the file")
                    self.assertNotIn("\n", str(caught.exception))

    def test_reads_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.safetensors"
            path.write_bytes(encode({"a": ("F32", [2], 0, 8)}, struct.pack("<ff", 1, 2)))
            self.assertEqual(_safetensors.read(path)[0]["a"].tolist(), [1, 2])
            with self.assertRaises(FileNotFoundError):
                _safetensors.read(Path(folder) / "b.safetensors")


if __name__ == "__main__":
    unittest.main()
