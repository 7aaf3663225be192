"""torch.compile and torch.export: one graph over a schedule, two batch sizes, gradients as in eager mode, no copies.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 compile_test.py
"""
import copy
import functools
import re
import sys
import unittest
import warnings

import torch

import renorm
from renorm import BatchRenorm2d
from support import Case, has_compile, ramp


@functools.lru_cache(None)
def why_no_inductor():
    """The reason why Inductor cannot compile here; "" if it can."""
    try:
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1)(torch.ones(3))
        return ""
    except Exception as error:  # the C++ compiler or a Python package of Inductor is missing
        return f"no Inductor: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def skip_without_inductor(case):
    if why_no_inductor():
        print(f"skipped: {why_no_inductor()}", file=sys.stderr)
        case.skipTest(why_no_inductor())


@unittest.skipUnless(has_compile, "no torch.compile")
class Compile(Case):
    backends = ("eager", "aot_eager", "inductor")

    def run_both(self, options, backend, momentum=0.5):
        torch._dynamo.reset()
        eager = BatchRenorm2d(3, momentum=momentum, clip=ramp(), **options)
        compiled = copy.deepcopy(eager)
        graphs = []

        def count(graph, inputs):
            graphs.append(graph)
            return torch._dynamo.lookup_backend(backend)(graph, inputs)

        run = torch.compile(compiled, backend=count, fullgraph=True)
        for step in range(14):
            x = torch.randn(4 if step < 10 else 6, 3, 5, 5) * 2 + 1
            grad = torch.randn_like(x)
            for layer, call in ((eager, eager), (compiled, run)):
                layer.zero_grad()
                x = x.detach().requires_grad_()
                y = call(x)
                y.backward(grad)
                layer.got = [y.detach(), x.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_std]
            for one, other in zip(compiled.got, eager.got):
                self.close(one, other, 1e-5)
            if step == 9:  # the whole ramp with one batch size
                self.assertEqual(len(graphs), 1)
        self.assertEqual(compiled.num_batches_tracked.item(), 14)
        self.assertEqual(compiled.clip_counts.tolist(), eager.clip_counts.tolist())
        self.assertLessEqual(len(graphs), 2)  # the second has a symbolic batch size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eager.eval()
            compiled.eval()
        for x in (x.detach(), x.detach()[:3]):
            self.close(run(x), eager(x), 1e-5)

    def test_one_graph_over_a_ramp_and_two_batch_sizes(self):
        for backend in self.backends:
            for options in ({}, {"activation": "relu"}):
                with self.subTest(backend=backend, **options):
                    if backend == "inductor":
                        skip_without_inductor(self)
                    self.run_both(options, backend)

    def test_deferred(self):
        torch._dynamo.reset()
        eager = BatchRenorm2d(3, clip=ramp(), statistics="deferred")
        compiled = copy.deepcopy(eager)
        run = torch.compile(compiled, backend="aot_eager", fullgraph=True)
        for _ in range(6):
            x = torch.randn(4, 3, 5, 5) + 1
            for layer, call in ((eager, eager), (compiled, run)):
                call(x)
                call(x + 1)
                renorm.commit(layer)
            self.close(compiled.running_mean, eager.running_mean)
        self.assertEqual(compiled.num_batches_tracked.item(), 6)

    def kernel_sizes(self, call, x):
        """The result of a compiled call, and all sizes in the kernels that Inductor made for it."""
        from torch._inductor.utils import run_and_get_code

        torch._dynamo.reset()
        result, codes = run_and_get_code(call, x)
        self.assertTrue(any("torch.ops.renorm.batch_renorm" in code for code in codes))
        kernels = [kernel for code in codes for kernel in code.split("cpp_fused")[1:]]
        return result, {int(size) for kernel in kernels for size in re.findall(r"\b(\d+)L\b", kernel)} - {0}

    def test_inductor_copies_no_channels_last_tensor(self):
        """A kernel on the whole batch has a loop over its 7 x 7 positions; one on the 16 channels has not."""
        if not renorm.has_kernels:
            self.skipTest("tensor operations are kernels of Inductor's own")
        skip_without_inductor(self)
        layer = BatchRenorm2d(16, activation="relu", clip=ramp())
        x = torch.randn(4, 16, 7, 7).contiguous(memory_format=torch.channels_last).requires_grad_()
        grad = torch.randn(4, 16, 7, 7).contiguous(memory_format=torch.channels_last)

        def both(x):
            y = torch.compile(layer, fullgraph=True)(x)
            return y, torch.autograd.grad(y, x, grad)[0]

        def copied(x):
            return torch.compile(lambda x: layer(x.contiguous()), fullgraph=True)(x)

        @torch.no_grad()
        def evaluated(x):
            return (torch.compile(layer, fullgraph=True)(x),)

        _, sizes = self.kernel_sizes(copied, x)
        self.assertTrue(any(size % 7 == 0 for size in sizes), f"a copy was not found among {sizes}")
        for mode, call in ((True, both), (False, evaluated)):
            layer.train(mode)
            results, sizes = self.kernel_sizes(call, x)
            self.assertFalse([size for size in sizes if size % 7 == 0], f"a copy in training={mode}")
            for result in results:
                self.assertTrue(result.is_contiguous(memory_format=torch.channels_last))


@unittest.skipUnless(hasattr(torch.library, "opcheck"), "no torch.library.opcheck")
class Opcheck(Case):
    def test_correction(self):
        """The operator of the package itself. Those of the library are tested in tests/install."""
        for hold in (2, -1):
            for dtype in (torch.float, torch.double):
                arguments = [torch.randn(2, 3), torch.rand(2, 3) + 0.5, torch.randn(3), torch.rand(3) + 0.5]
                arguments = [tensor.to(dtype) for tensor in arguments]
                torch.library.opcheck(torch.ops.renorm_tensors.correction.default,
                                      (*arguments, torch.tensor(5), hold, 3.0, 9, 5.0, 7))


@unittest.skipUnless(has_compile, "no torch.export")
class Export(Case):
    def test_evaluation(self):
        layer = BatchRenorm2d(3, clip=ramp(), activation="relu").eval()
        layer.running_mean.normal_()
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.export.export(layer, (torch.randn(4, 3, 5, 5),), dynamic_shapes=({0: batch},))
        x = torch.randn(7, 3, 5, 5)
        self.close(program.module()(x), layer(x))

    def test_training(self):
        layer = BatchRenorm2d(3, clip=ramp(), activation="relu")
        x = torch.randn(4, 3, 5, 5)
        program = torch.export.export(copy.deepcopy(layer), (x,))
        module = program.module()
        for _ in range(5):
            x = torch.randn(4, 3, 5, 5)
            self.close(module(x), layer(x))
        self.close(dict(module.named_buffers())["running_mean"], layer.running_mean)


if __name__ == "__main__":
    unittest.main()
