"""What the tests of the Python package share."""
import unittest

import torch

import renorm

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
has_compile = VERSION >= (2, 4)
has_func = hasattr(torch, "func")
tells_recomputation = hasattr(torch._C, "_current_graph_task_id")


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        renorm.modules._warned.clear()

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
