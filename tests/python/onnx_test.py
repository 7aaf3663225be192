"""torch.onnx.export of an evaluation model writes BatchNormalization nodes that other runtimes have.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 onnx_test.py
"""
import importlib.util
import inspect
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from torch import nn

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
        # The exporter of TorchScript is in all releases; the newer one needs a package that Debian does not have.
        options = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
        self.file = self.folder / "model.onnx"
        torch.onnx.export(self.model, (torch.randn(2, 3, 6, 6),), str(self.file), input_names=["x"],
                          dynamic_axes={"x": {0: "batch"}}, **options)

    def run_python(self, code, *arguments):
        done = subprocess.run([sys.executable, "-c", code, str(self.file), *map(str, arguments)], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_norms_are_batch_normalization(self):
        content = self.file.read_bytes()
        self.assertGreaterEqual(content.count(b"BatchNormalization"), 3)
        self.assertNotIn(b"renorm::", content)

    @unittest.skipUnless(has_onnx, "no onnx")
    def test_the_checker_accepts_it(self):
        self.assertEqual(self.run_python(CHECK).split()[-1], "3")

    @unittest.skipUnless(has_runtime, "no onnxruntime")
    def test_the_runtime_agrees(self):
        import numpy

        x = torch.randn(5, 3, 6, 6)
        numpy.save(self.folder / "x.npy", x.numpy())
        self.run_python(RUN, self.folder / "x.npy", self.folder / "y.npy")
        self.close(torch.from_numpy(numpy.load(self.folder / "y.npy")), self.model(x), 1e-5)


if __name__ == "__main__":
    unittest.main()
