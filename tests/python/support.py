"""What the tests of the Python package share."""
import os
import unittest

import torch

import renorm

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
has_compile = VERSION >= (2, 4)
has_func = hasattr(torch, "func")
if has_func:
    func = torch.func
else:
    try:
        import functorch as func  # what torch.func was before PyTorch 2
    except ImportError:
        func = None
recognises_recomputation = hasattr(torch._C, "_current_graph_task_id")


def avoid_incomplete_amx():
    """As src/base/cpu.h: a virtual machine that reports AMX without CPUID leaf 0x1D. oneDNN reads the variable later."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line.partition(":") for line in file]
    except OSError:
        return
    values = {name.strip(): value for name, _, value in lines}
    if "amx_tile" in values.get("flags", "").split() and int(values["cpuid level"]) < 0x1D:
        os.environ.setdefault("DNNL_MAX_CPU_ISA", "AVX512_CORE_BF16")


avoid_incomplete_amx()


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        renorm._checks.warned.clear()

    def close(self, one, other, tolerance=1e-6):
        """Equal within `tolerance` of the larger tensor's scale."""
        self.assertEqual(one.shape, other.shape)
        one, other = one.detach().double(), other.detach().double()
        scale = max(one.abs().max().item(), other.abs().max().item(), 1e-30) if one.numel() else 1.0
        error = (one - other).abs().max().item() / scale if one.numel() else 0.0
        self.assertLessEqual(error, tolerance)

    def same(self, one, other):
        self.assertTrue(torch.equal(one, other), f"{one} differs from {other}")


def ramp():
    """A schedule that a few steps go through."""
    return renorm.ClipSchedule.ramp(hold=2, r_max=3.0, r_step=9, d_max=5.0, d_step=7)


def group_of(i, batch, group_size, grouping):
    if group_size == 0:
        return 0
    return i // group_size if grouping == "contiguous" else i % (batch // group_size)


def reference(x, layer, residual=None):
    """One training forward in double, example by example: output, mean and std of the groups."""
    x = x.double()
    batch, channels = x.shape[:2]
    groups = 1 if layer.group_size == 0 else batch // layer.group_size
    r_max, d_max = layer.clip.at(layer.num_batches_tracked.item())
    members = [[i for i in range(batch) if group_of(i, batch, layer.group_size, layer.grouping) == g] for g in range(groups)]
    output, means, stds = torch.empty_like(x), [], []
    for rows in members:
        values = x[rows].transpose(0, 1).reshape(channels, -1)
        mean = values.mean(1)
        std = (layer.eps + (values - mean[:, None]).square().mean(1)).sqrt()
        r = (std / layer.running_std.double()).clamp(1 / r_max, r_max)
        d = ((mean - layer.running_mean.double()) / layer.running_std.double()).clamp(-d_max, d_max)
        shape = [1, channels] + [1] * (x.dim() - 2)
        x_hat = (x[rows] - mean.reshape(shape)) / std.reshape(shape) * r.reshape(shape) + d.reshape(shape)
        weight = layer.weight.double() if layer.weight is not None else torch.ones(channels).double()
        bias = layer.bias.double() if layer.bias is not None else torch.zeros(channels).double()
        output[rows] = weight.reshape(shape) * x_hat + bias.reshape(shape)
        means.append(mean)
        stds.append(std)
    if residual is not None:
        output = output + residual.double()
    if layer.activation == "relu":
        output = output.relu()
    return output, torch.stack(means), torch.stack(stds)


def trained(layer, steps=3, shape=(6, 3, 4, 5)):
    for i in range(steps):
        layer(torch.randn(shape) * 2 + 1)
    return layer
