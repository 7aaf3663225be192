"""renorm.load_run: exported files that are made here, and files that are refused.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 exported_test.py
"""
import json
import resource
import struct
import tempfile
import unittest
from pathlib import Path

import torch

import renorm
from renorm import runs
from safetensors_test import encode


class Clip(unittest.TestCase):
    def test_settings(self):
        for text, schedule in {
            "paper": renorm.ClipSchedule.paper(2000), "paper@130000": renorm.ClipSchedule.paper(),
            "3,5": renorm.ClipSchedule.constant(3, 5), "inf,inf": renorm.ClipSchedule.unlimited(),
            "hold:4%,r:3@31%,d:5@19%": renorm.ClipSchedule.ramp(80, 3, 620, 5, 380),
            "r:2@100,d:1@50%": renorm.ClipSchedule.ramp(0, 2, 100, 1, 1000),
        }.items():
            self.assertEqual(runs._clip_of(text, 2000), schedule, text)


def card(**changes):
    values = {
        "format_version": 1, "renorm": "0.1.0", "model": "convnet:2", "folded": True,
        "norm": {"kind": "renorm", "scale": False, "eps": 0.001}, "weights": "averaged", "step": 3,
        "input": {"channels": 1, "height": 4, "width": 4, "mean": [0.5], "std": [0.25], "centre": 1.0},
        "classes": ["cat", "dog"],
    }
    values.update(changes)
    return {"renorm": json.dumps(values)}


def images(channels, height, width):
    mean, std = [0.0] * channels, [1.0] * channels
    return {"channels": channels, "height": height, "width": width, "mean": mean, "std": std, "centre": 1}


class Files(unittest.TestCase):
    """Exported files that are made here: a folded net of one convolution of two channels."""

    ENTRIES = {
        "conv1.conv.weight": ("F32", [2, 1, 3, 3], 0, 72), "conv1.conv.bias": ("F32", [2], 72, 80),
        "classifier.weight": ("F32", [2, 2], 80, 96), "classifier.bias": ("F32", [2], 96, 104),
    }
    # The middle of the first kernel is 2, of the second -1; the classifier swaps the means of the two maps.
    VALUES = [0, 0, 0, 0, 2, 0, 0, 0, 0] + [0, 0, 0, 0, -1, 0, 0, 0, 0] + [1, 0.5] + [0, 1, 1, 0] + [10, 20]
    DATA = struct.pack("<26f", *VALUES)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "net.safetensors"

    def tearDown(self):
        self.folder.cleanup()

    def load(self, entries=None, data=None, metadata=None):
        self.path.write_bytes(encode(entries or self.ENTRIES, self.DATA if data is None else data, metadata or card()))
        return renorm.load_run(self.path)

    def test_outputs(self):
        model = self.load()
        images = torch.full((1, 1, 4, 4), 255, dtype=torch.uint8)
        x = model.card.standardize(images)
        self.assertTrue(torch.equal(x, torch.full((1, 1, 4, 4), 2.0)))  # (1 - 0.5) / 0.25
        # relu(2 * 2 + 1) = 5, relu(-2 + 0.5) = 0.
        self.assertEqual(model(x).tolist(), [[10.0, 25.0]])
        self.assertEqual(model.card.classes, ("cat", "dog"))
        self.assertFalse(model.training)

    def test_standardize_channels_apart(self):
        card3 = runs.ModelCard("m", ("a",), 3, 1, 2, (0.0, 0.5, 1.0), (1.0, 0.5, 2.0), 1.0, "renorm", "raw", 0, False)
        images = torch.tensor([0, 255], dtype=torch.uint8).repeat(3).reshape(3, 1, 2)
        self.assertEqual(card3.standardize(images).tolist(), [[[0.0, 1.0]], [[-1.0, 1.0]], [[-0.5, 0.0]]])
        with self.assertRaisesRegex(ValueError, "images must be uint8"):
            card3.standardize(images.float())

    def test_random_state_of_the_caller_is_kept(self):
        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        self.load()
        self.assertTrue(torch.equal(torch.rand(2), expected))

    def check_refused(self, message, **arguments):
        with self.subTest(message=message):
            with self.assertRaisesRegex(ValueError, f"^{self.path}: .*{message}") as caught:
                self.load(**arguments)
            self.assertNotIn("\n", str(caught.exception))

    def test_refused(self):
        def without(name):
            return {key: value for key, value in self.ENTRIES.items() if key != name}

        entries = dict(without("classifier.bias"), bias=self.ENTRIES["classifier.bias"])
        wide = dict(self.ENTRIES)
        wide["conv1.conv.bias"] = ("F32", [1, 2], 72, 80)
        half = dict(self.ENTRIES)
        half["conv1.conv.bias"] = ("F16", [4], 72, 80)
        extra = dict(self.ENTRIES, more=("F32", [0], 104, 104))
        for message, arguments in {
            "no model card; only files written by 'renorm export' have one": dict(metadata={"other": "x"}),
            "model card: not valid JSON": dict(metadata={"renorm": "{"}),
            "model card: format_version 9 is unknown": dict(metadata=card(format_version=9)),
            "'model' is missing or not of the type str": dict(metadata=card(model=1)),
            "'kind' must be one of renorm, batchnorm, native, groupnorm, got 'x'": dict(
                metadata=card(norm={"kind": "x", "scale": False, "eps": 1})),
            "'input': must be a JSON object": dict(metadata=card(input=1)),
            "'mean' and 'std' must have 1 values": dict(metadata=card(
                input={"channels": 1, "height": 4, "width": 4, "mean": [], "std": [1], "centre": 1})),
            "'height' must be from 1 to 4096, got 5000": dict(metadata=card(input=images(1, 5000, 4))),
            "'channels' must give images of at most 50331648 values, got 67108864": dict(
                metadata=card(input=images(4, 4096, 4096))),
            "tensor of 'classifier.bias' is missing": dict(entries=entries),
            r"'conv1.conv.bias' is torch.float32 \[1, 2\], expected torch.float32 \[2\]": dict(entries=wide),
            r"'conv1.conv.bias' is torch.float16 \[4\]": dict(entries=half),
            "tensor 'more' is not part of the model": dict(entries=extra),
        }.items():
            self.check_refused(message, **arguments)

    def test_refused_models(self):
        for message, values in {
            "has no classes": dict(classes=[]),
            "the model 'net' is unknown to this version": dict(model="net"),
            "the model resnet18 has no options": dict(model="resnet18:x"),
            "its item 'x' is unknown": dict(model="convnet:x"),
            "its item '2x2:4' is not a convolution": dict(model="convnet:2x2:4"),
            "its item 'pool' is unknown": dict(model="convnet:flat,pool"),
            "its item 'max' cannot halve an image of 1x1 pixels": dict(model="convnet:max,max,max,flat"),
            "its width '3x3:4' is not a whole number from 1 to 65536": dict(model="mlp:8,3x3:4"),
            "its width '' is not a whole number": dict(model="mlp:"),
            "its width '65537' is not a whole number": dict(model="mlp:65537"),
            "too small for its weights": dict(model="convnet:65536,65536"),
        }.items():
            self.check_refused(message, metadata=card(**values))

    def test_hostile_sizes(self):
        """A small file cannot make the program allocate large tensors."""
        fixed = ("resnet18", "resnet50", "inception-v3", "inception-small", "resnet-small", "convnet")
        flat = ("mlp", "convnet:flat", "convnet:1,flat,64", "convnet:1/8,flat,65536")
        many, colours = dict(classes=[str(i) for i in range(100000)]), dict(input=images(65536, 4, 4))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for models, values in (
            (fixed + flat, many), (fixed + flat, colours), (flat, dict(input=images(3, 4096, 4096))),
        ):
            for model in models:
                with self.subTest(model=model, values=list(values)):
                    with self.assertRaisesRegex(ValueError, "too small for its weights"):
                        self.load(metadata=card(model=model, **values))
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 100 * 1024)  # kB

    def test_options_and_paths(self):
        self.load()
        with self.assertRaisesRegex(ValueError, "need the folder of a run"):
            renorm.load_run(self.path, averaged=False)
        with self.assertRaisesRegex(ValueError, "need the folder of a run"):
            renorm.load_run(self.path, checkpoint="best")
        with self.assertRaisesRegex(FileNotFoundError, "nothing.safetensors"):
            renorm.load_run(Path(self.folder.name) / "nothing.safetensors")
        with self.assertRaisesRegex(ValueError, "net.pt: a TorchScript file is a program"):
            renorm.load_run(Path(self.folder.name) / "net.pt")
        with self.assertRaisesRegex(FileNotFoundError, "is not the folder of a run"):
            renorm.load_run(self.folder.name)
        with self.assertRaisesRegex(ValueError, "checkpoint must be 'last', 'best' or 'step-N', got 'first'"):
            renorm.load_run(self.folder.name, checkpoint="first")


if __name__ == "__main__":
    unittest.main()
