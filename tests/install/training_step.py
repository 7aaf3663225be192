"""A training step with the installed package, whose operators come from the given library.

usage: python3 training_step.py librenorm.so
"""
import json
import os
import pathlib
import sys

import renorm
import torch

package = pathlib.Path(renorm.__file__).parent
expected = os.path.realpath(sys.argv[1])
loaded = {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "librenorm" in line}
assert loaded == {expected}, f"loaded {loaded}, expected {expected}"
described = json.loads((package / "library.json").read_text())
assert described["renorm"] == renorm.__version__, f"{described} beside renorm {renorm.__version__}"
assert torch.__version__.startswith(described["torch"]), f"{described} with torch {torch.__version__}"

torch.manual_seed(1)
layer = renorm.BatchRenorm2d(3, clip=renorm.ClipSchedule.constant(3.0, 5.0))
before = layer.weight.detach().clone()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
layer(torch.randn(4, 3, 5, 5) + 1).square().mean().backward()
optimizer.step()
assert not torch.equal(layer.weight, before) and (layer.running_mean > 0).all()
assert torch.isfinite(layer.eval()(torch.randn(1, 3, 5, 5))).all()
print(f"renorm {renorm.__version__} in {package}: a training step with PyTorch {torch.__version__}")
