"""torch.onnx.export of an evaluation model writes BatchNormalization nodes that other runtimes have.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 onnx_test.py
"""
import importlib.util
import inspect
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
from torch import nn

import renorm
from renorm import BatchRenorm1d, BatchRenorm2d, ClipSchedule
from support import Case

has_onnx = importlib.util.find_spec("onnx") is not None
has_runtime = importlib.util.find_spec("onnxruntime") is not None

# In processes of their own: the packages of some releases bring other copies of the same C++ library than torch.
CHECK = """
import sys, onnx
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model)
print(sum(node.op_type == "BatchNormalization" for node in model.graph.node))
"""
RUN = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
numpy.save(sys.argv[3], session.run(None, {"x": numpy.load(sys.argv[2])})[0])
"""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.first = BatchRenorm2d(4, activation="relu", clip=ClipSchedule.unlimited())
        self.second = BatchRenorm2d(4, scale=False, clip=ClipSchedule.unlimited())
        self.last = BatchRenorm1d(4, clip=ClipSchedule.unlimited())

    def forward(self, x):
        y = self.first(self.conv(x))
        return self.last(self.second(y, y).flatten(2).mean(2))


class Onnx(Case):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.model = Block()
        for _ in range(3):
            self.model(torch.randn(4, 3, 6, 6) * 2 + 1)
        self.model.eval()

    def export(self, model, **options):
        """The file of the exported model."""
        # The exporter of TorchScript is in all releases; the newer one needs a package that Debian does not have.
        if "dynamo" in inspect.signature(torch.onnx.export).parameters:
            options["dynamo"] = False
        file = self.folder / "model.onnx"
        torch.onnx.export(model, (torch.randn(2, 3, 6, 6),), str(file), input_names=["x"],
                          dynamic_axes={"x": {0: "batch"}}, **options)
        return file

    def programs(self):
        """The model as TorchScript, compiled and traced."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer releases deprecate TorchScript
            yield "script", torch.jit.script(self.model)
            yield "trace", torch.jit.trace(self.model, torch.randn(2, 3, 6, 6))

    def run_python(self, code, *arguments):
        done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check_nodes(self, file, norms=3):
        content = file.read_bytes()
        self.assertGreaterEqual(content.count(b"BatchNormalization"), norms)
        self.assertNotIn(b"renorm::", content)
        if has_onnx:
            self.assertEqual(self.run_python(CHECK, file).split()[-1], str(norms))

    def check_values(self, file):
        if not has_runtime:
            return
        import numpy

        x = torch.randn(5, 3, 6, 6)
        numpy.save(self.folder / "x.npy", x.numpy())
        self.run_python(RUN, file, self.folder / "x.npy", self.folder / "y.npy")
        self.close(torch.from_numpy(numpy.load(self.folder / "y.npy")), self.model(x), 1e-5)

    def test_norms_are_batch_normalization(self):
        file = self.export(self.model)
        self.check_nodes(file)
        self.check_values(file)

    @unittest.skipUnless(renorm.has_kernels, "without the library the exporter cannot follow ranks in TorchScript")
    def test_scripted_and_traced_models(self):
        for name, program in self.programs():
            for opset in (9, 13, 17):
                with self.subTest(program=name, opset=opset):
                    file = self.export(program, opset_version=opset)
                    self.check_nodes(file)
                    self.check_values(file)

    def test_scripted_sequential(self):
        clip = ClipSchedule.unlimited()
        self.model = nn.Sequential(nn.Conv2d(3, 4, 3), BatchRenorm2d(4, clip=clip, activation="relu"), nn.Conv2d(4, 4, 1),
                                   BatchRenorm2d(4, clip=clip, affine=False))
        for _ in range(3):
            self.model(torch.randn(4, 3, 6, 6) * 2 + 1)
        self.model.eval()
        file = self.export(torch.jit.script(self.model))
        self.check_nodes(file, 2 if renorm.has_kernels else 0)  # otherwise tensor operations
        self.check_values(file)

    @unittest.skipUnless(has_onnx, "no onnx")
    def test_onnx_is_there(self):
        """A skip says that the checker did not see the files."""

    @unittest.skipUnless(has_runtime, "no onnxruntime")
    def test_onnxruntime_is_there(self):
        """A skip says that no values were compared."""


if __name__ == "__main__":
    unittest.main()
