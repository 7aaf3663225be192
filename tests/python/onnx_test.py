"""torch.onnx.export of an evaluation model writes BatchNormalization nodes that other runtimes have.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 onnx_test.py
"""
import inspect
import io
import unittest

import torch
from torch import nn

from renorm import BatchRenorm1d, BatchRenorm2d, ClipSchedule
from support import Case

try:
    import onnx
except ImportError:
    onnx = None
try:
    import onnxruntime
except ImportError:
    onnxruntime = None


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


def exported(model, x):
    # The exporter of TorchScript is in all releases; the newer one needs a package that Debian does not have.
    options = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, input_names=["x"], dynamic_axes={"x": {0: "batch"}}, **options)
    return file.getvalue()


class Onnx(Case):
    def model(self):
        model = Block()
        for _ in range(3):
            model(torch.randn(4, 3, 6, 6) * 2 + 1)
        return model.eval()

    def test_nodes(self):
        text = exported(self.model(), torch.randn(2, 3, 6, 6))
        self.assertGreaterEqual(text.count(b"BatchNormalization"), 3)
        self.assertNotIn(b"renorm::", text)
        if onnx is not None:
            graph = onnx.load_from_string(text)
            onnx.checker.check_model(graph)
            self.assertEqual(sum(node.op_type == "BatchNormalization" for node in graph.graph.node), 3)

    @unittest.skipIf(onnxruntime is None, "no onnxruntime")
    def test_the_runtime_agrees(self):
        model, x = self.model(), torch.randn(5, 3, 6, 6)
        session = onnxruntime.InferenceSession(exported(model, torch.randn(2, 3, 6, 6)), providers=["CPUExecutionProvider"])
        (got,) = session.run(None, {"x": x.numpy()})
        self.close(torch.from_numpy(got), model(x), 1e-5)


if __name__ == "__main__":
    unittest.main()
