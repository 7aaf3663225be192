"""Batch Renormalization from Python: the installed library's operators on torch.ops.

usage: python3 renorm_op.py path/to/librenorm.so
"""
import sys

import torch

torch.ops.load_library(sys.argv[1])
torch.manual_seed(1)

channels = 3
x = torch.randn(8, channels, 5, 5, requires_grad=True)
weight = torch.ones(channels, requires_grad=True)
bias = torch.zeros(channels, requires_grad=True)
running_mean, running_std = torch.zeros(channels), torch.ones(channels)

output, batch_mean, batch_mean_low, batch_std, r, d, mask = torch.ops.renorm.batch_renorm(
    x, weight, bias, running_mean, running_std,
    eps=1e-5, r_max=3.0, d_max=5.0, group_size=4)
output.square().sum().backward()

# With limits this wide nothing is clipped, so training gives what inference gives.
inference = torch.ops.renorm.batch_renorm_inference(x, weight, bias, running_mean, running_std)
same = torch.allclose(output, inference, atol=1e-5)
print("groups x channels:", list(r.shape))
print("training equals inference:", same)
print("gradients:", all(torch.isfinite(t.grad).all().item() for t in (x, weight, bias)))
sys.exit(0 if same else 1)
