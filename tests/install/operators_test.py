"""The operators as PyTorch sees them: torch.library.opcheck, torch.compile with a second batch size, torch.func.

usage: python3 operators_test.py librenorm.so
"""
import sys
import unittest

import torch

torch.ops.load_library(sys.argv[1])
ops = torch.ops.renorm
has_opcheck = hasattr(torch.library, "opcheck")
has_compile = hasattr(torch, "compile") and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
has_func = hasattr(torch, "func")

SHAPES = {"nchw": (4, 3, 5, 5), "dense": (8, 3), "ncl": (4, 3, 7)}


def tensors(shape=(4, 3, 5, 5), dtype=torch.float, channels_last=False, grad=True):
    """input, weight, bias, running_mean, running_std, residual"""
    torch.manual_seed(1)
    wide = torch.double if dtype == torch.double else torch.float
    layout = {"memory_format": torch.channels_last} if channels_last else {}
    x = torch.randn(shape).to(dtype).contiguous(**layout).requires_grad_(grad)
    residual = torch.randn(shape).to(dtype).contiguous(**layout).requires_grad_(grad)
    c = shape[1]
    weight = (torch.rand(c) + 0.5).to(wide).requires_grad_(grad)
    bias = torch.randn(c).to(wide).requires_grad_(grad)
    return x, weight, bias, torch.randn(c).to(wide), (torch.rand(c) + 0.5).to(wide), residual


CLIP = {"hold": 2, "r_max": 3.0, "r_step": 9, "d_max": 5.0, "d_step": 7}


@unittest.skipUnless(has_opcheck, "no torch.library.opcheck")
class Opcheck(unittest.TestCase):
    def cases(self):
        for dtype in (torch.float, torch.double, torch.bfloat16, torch.half):
            yield {"dtype": dtype}
        yield {"channels_last": True}
        yield {"shape": SHAPES["dense"]}
        yield {"shape": SHAPES["ncl"]}
        yield {"grad": False}

    def test_training(self):
        for case in self.cases():
            for options in ({}, {"group_size": 2, "grouping": "strided", "activation": "relu"}):
                with self.subTest(**case, **options):
                    x, w, b, mean, std, residual = tensors(**case)
                    torch.library.opcheck(ops.batch_renorm, (x, w, b, mean, std, 1e-5, 3.0, 5.0), options)
                    options = dict(options, residual=residual)
                    torch.library.opcheck(ops.batch_renorm, (x, w, b, mean, std, 1e-5, 3.0, 5.0), options)

    def test_training_without_parameters_and_averages(self):
        x = tensors()[0]
        torch.library.opcheck(ops.batch_renorm, (x,))

    def test_step(self):
        for case in self.cases():
            with self.subTest(**case):
                x, w, b, mean, std, residual = tensors(**case)
                step = torch.tensor(5)
                torch.library.opcheck(ops.batch_renorm_step, (x, w, b, mean, std, step),
                                      dict(CLIP, activation="relu", residual=residual))

    def test_inference(self):
        for case in self.cases():
            for activation in ("none", "relu"):
                with self.subTest(**case, activation=activation):
                    x, w, b, mean, std, residual = tensors(**case)
                    torch.library.opcheck(ops.batch_renorm_inference, (x, w, b, mean, std, activation, residual))

    def test_backward(self):
        for case in self.cases():
            for mask in ([True] * 4, [True, False, True, False]):
                with self.subTest(**case, mask=mask):
                    case["grad"] = False
                    x, w, b, mean, std, residual = tensors(**case)
                    _, batch_mean, low, batch_std, r, d, bits = ops.batch_renorm(x, w, b, mean, std, activation="relu",
                                                                                 residual=residual)
                    torch.library.opcheck(ops.batch_renorm_backward,
                                          (torch.ones_like(x), x, w, b, bits, batch_mean, low, batch_std, r, d, 0,
                                           "contiguous", "relu", False, mask))

    def test_differentiable_backward(self):
        for options in ({}, {"residual": True}, {"group_size": 2}, {"group_size": 2, "grouping": "strided"},
                        {"frozen": True}, {"channels_last": True, "residual": True}):
            for activation in ("none", "relu"):
                with self.subTest(activation=activation, **options):
                    self.check_differentiable_backward(activation, **options)

    def check_differentiable_backward(self, activation, group_size=0, grouping="contiguous", frozen=False,
                                      residual=False, channels_last=False):
        x, w, b, mean, std, other = tensors(dtype=torch.double, channels_last=channels_last)
        with torch.no_grad():
            _, batch_mean, low, batch_std, r, d, bits = ops.batch_renorm(
                x, w, b, mean, std, 1e-5, 3.0, 5.0, group_size=group_size, grouping=grouping, activation=activation,
                residual=other if residual else None)
        has_bits = residual and activation == "relu"
        grad = torch.randn_like(x).requires_grad_()
        torch.library.opcheck(ops.batch_renorm_backward,
                              (grad, x, w, b, bits if has_bits else None, batch_mean, low, batch_std, r, d, group_size,
                               grouping, activation, frozen, [True, True, True, has_bits]))

    def test_training_in_one_call(self):
        """Without a record, for which the operator reads data that tensors of the compiler do not have."""
        for case in self.cases():
            for momentum in (0.1, None):
                with self.subTest(**case, momentum=momentum):
                    x, w, b, mean, std, residual = tensors(**case)
                    state = (mean, std, torch.tensor(4), torch.zeros(4, dtype=torch.int64))
                    torch.library.opcheck(ops.batch_renorm_train_, (x, w, b, *state, momentum),
                                          dict(CLIP, activation="relu", residual=residual))

    def test_divided_batch(self):
        for case in self.cases():
            for activation in ("none", "relu"):
                with self.subTest(**case, activation=activation):
                    case["grad"] = False
                    x, w, b, mean, std, _ = tensors(**case)
                    torch.library.opcheck(ops.batch_renorm_statistics, (x,))
                    rows = torch.stack([ops.batch_renorm_statistics(x), ops.batch_renorm_statistics(x + 1)])
                    merge = (rows, mean, std, torch.tensor(5), *CLIP.values(), 1e-5, mean.dtype)
                    torch.library.opcheck(ops.batch_renorm_merge, merge)
                    *group, count = ops.batch_renorm_merge(*merge)
                    torch.library.opcheck(ops.batch_renorm_apply, (x, w, b, *group, activation))
                    backward = (torch.ones_like(x), x, w, b, *group)
                    torch.library.opcheck(ops.batch_renorm_backward_sums, (*backward, activation))
                    sums = ops.batch_renorm_backward_sums(*backward, activation)
                    torch.library.opcheck(ops.batch_renorm_backward_apply, (*backward, sums, count, activation))

    def test_move_averages(self):
        for momentum in (0.1, None):
            args = (torch.zeros(3), torch.ones(3), torch.tensor(4), torch.randn(2, 3), torch.rand(2, 3), momentum)
            torch.library.opcheck(ops.move_averages_, args)

    def test_count_clips(self):
        args = (torch.zeros(4, dtype=torch.int64), torch.randn(2, 3), torch.rand(2, 3) + 0.5, torch.zeros(3), torch.ones(3),
                torch.tensor(4))
        torch.library.opcheck(ops.count_clips_, args, CLIP)


class Tags(unittest.TestCase):
    def test_every_operator_is_tagged(self):
        names = [schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("renorm::")]
        self.assertGreaterEqual(len(names), 12)
        expected = {"pt2_compliant_tag", "needs_fixed_stride_order"}
        if not all(hasattr(torch.Tag, tag) for tag in expected):
            self.skipTest("no such tags")
        for name in names:
            tags = getattr(ops, name.split("::")[1]).default.tags
            self.assertLessEqual(expected, {tag.name for tag in tags}, name)


class Layer(torch.nn.Module):
    """The smallest layer on the operators: state in buffers only."""

    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(channels))
        self.bias = torch.nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_std", torch.ones(channels))
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x):
        if not self.training:
            return ops.batch_renorm_inference(x, self.weight, self.bias, self.running_mean, self.running_std, "relu")
        y, mean, _, std, _, _, _ = ops.batch_renorm_step(x, self.weight, self.bias, self.running_mean, self.running_std,
                                                         self.step, activation="relu", **CLIP)
        ops.move_averages_(self.running_mean, self.running_std, self.step, mean, std, 0.5)
        return y


class Training(unittest.TestCase):
    def test_averages_and_step_move(self):
        layer = Layer(3)
        for i in range(12):
            layer(torch.randn(4, 3, 5, 5) + 1).square().sum().backward()
            self.assertEqual(layer.step.item(), i + 1)
        self.assertTrue((layer.running_mean > 0.5).all())

    def test_statistics_that_are_not_finite_raise(self):
        layer = Layer(3)
        with self.assertRaisesRegex(RuntimeError, "channel 1 are not finite"):
            x = torch.randn(4, 3, 5, 5)
            x[0, 1] = float("nan")
            layer(x)
        self.assertEqual(layer.step.item(), 0)

    @unittest.skipUnless(has_compile, "no torch.compile")
    def test_record_under_a_compiler_raises(self):
        def train(x):
            state = (torch.zeros(3), torch.ones(3), torch.tensor(0), torch.zeros(4, dtype=torch.int64))
            return ops.batch_renorm_train_(x, None, None, *state, 0.1, **CLIP, record=True)

        self.assertEqual(train(torch.randn(4, 3))[1].numel(), 13)
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "record requires tensors on the CPU, outside of torch.compile"):
            torch.compile(train, backend="aot_eager", fullgraph=True)(torch.randn(4, 3))

    def test_unknown_choices_raise(self):
        with self.assertRaisesRegex(RuntimeError, "activation must be 'none' or 'relu', got 'gelu'"):
            ops.batch_renorm(torch.randn(4, 3), activation="gelu")

    @unittest.skipUnless(has_compile, "no torch.compile")
    def test_compiled_equals_eager_over_a_ramp_and_two_batch_sizes(self):
        torch._dynamo.reset()
        eager, compiled = Layer(3), Layer(3)
        graphs = []

        def count(graph, inputs):
            graphs.append(graph)
            from torch._dynamo.backends.debugging import aot_eager
            return aot_eager(graph, inputs)

        run = torch.compile(compiled, backend=count, fullgraph=True)
        torch.manual_seed(3)
        for i in range(14):
            x = torch.randn(4 if i < 10 else 6, 3, 5, 5) + 1
            for layer, call in ((eager, eager), (compiled, run)):
                layer.zero_grad()
                call(x).square().sum().backward()
            torch.testing.assert_close(compiled.weight.grad, eager.weight.grad)
            torch.testing.assert_close(compiled.running_std, eager.running_std)
            if i == 9:  # the whole ramp with one batch size
                self.assertEqual(len(graphs), 1)
        self.assertEqual(compiled.step.item(), 14)
        self.assertLessEqual(len(graphs), 2)
        compiled.eval()
        torch.testing.assert_close(run(x), eager.eval()(x))
        torch.testing.assert_close(run(x[:3]), eager(x[:3]))


@unittest.skipUnless(has_compile, "no torch.compile")
class Inductor(unittest.TestCase):
    """A graph that has only our operators has no kernels of Inductor's own, such as copies into another layout."""

    def test_copies_no_channels_last_tensor(self):
        x, w, b, mean, std, residual = tensors((4, 16, 6, 6), channels_last=True)
        grad = torch.randn(4, 16, 6, 6).contiguous(memory_format=torch.channels_last)

        def step(x, w, b, residual):
            return ops.batch_renorm(x, w, b, mean, std, 1e-5, 3.0, 5.0, activation="relu", residual=residual)[0]

        def both(*leaves):
            y = torch.compile(step, fullgraph=True)(*leaves)
            return (y,) + torch.autograd.grad(y, leaves, grad)

        torch._dynamo.reset()
        try:
            from torch._inductor.utils import run_and_get_code
        except ImportError as error:
            self.skipTest(f"no Inductor: {error}")
        results, codes = run_and_get_code(both, x, w, b, residual)
        self.assertEqual(len(codes), 2)
        for code in codes:
            self.assertIn("torch.ops.renorm.batch_renorm", code)
            self.assertNotIn("cpp_fused", code)
        expected = step(x, w, b, residual)
        torch.testing.assert_close(results[0], expected)
        for got, want in zip(results[1:], torch.autograd.grad(expected, (x, w, b, residual), grad)):
            torch.testing.assert_close(got, want)
        self.assertTrue(results[0].is_contiguous(memory_format=torch.channels_last))


class Derivatives(unittest.TestCase):
    averages = (torch.full((2,), 1e4, dtype=torch.double), torch.full((2,), 1e-2, dtype=torch.double))

    def function(self, x, w, b, residual, activation="none", grouping="contiguous"):
        return ops.batch_renorm(x, w, b, *self.averages, eps=1e-3, r_max=1.5, d_max=0.7, group_size=3,
                                grouping=grouping, activation=activation, residual=residual)[0]

    def step(self, x, w, b, residual, activation="none", grouping="contiguous"):
        """At the end of the ramp, where its limits are those of function()."""
        return ops.batch_renorm_step(x, w, b, *self.averages, torch.tensor(9), 2, 1.5, 9, 0.7, 7, eps=1e-3, group_size=3,
                                     grouping=grouping, activation=activation, residual=residual)[0]

    def arguments(self):
        x, w, b, _, _, residual = tensors((6, 2, 3), torch.double)
        return x, w, b, residual

    def check_derivatives(self, operator, **options):
        # The limits hold r and d fixed, so differences of the function are derivatives of it.
        x, w, b, residual = self.arguments()
        with torch.no_grad():  # No difference crosses the point where ReLU has no derivative.
            before = operator(x, w, b, residual, **dict(options, activation="none"))
            residual[before.abs() < 0.02] += 1
        function = lambda *args: operator(*args, **options)
        self.assertTrue(torch.autograd.gradcheck(function, (x, w, b, residual)))
        self.assertTrue(torch.autograd.gradgradcheck(function, (x, w, b, residual)))

    def test_second_derivative(self):
        for activation in ("none", "relu"):
            for grouping in ("contiguous", "strided"):
                with self.subTest(activation=activation, grouping=grouping):
                    self.check_derivatives(self.function, activation=activation, grouping=grouping)

    def test_second_derivative_of_a_step(self):
        self.check_derivatives(self.step, activation="relu", grouping="strided")

    def test_gradient_penalty(self):
        x, w, b, residual = self.arguments()
        (gradient,) = torch.autograd.grad(self.function(x, w, b, residual).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        self.assertTrue(torch.isfinite(x.grad).all() and x.grad.abs().max() > 0)

    @unittest.skipUnless(has_func, "no torch.func")
    def test_function_transforms(self):
        for activation in ("none", "relu"):
            with self.subTest(activation=activation):
                self.check_function_transforms(activation)

    def check_function_transforms(self, activation):
        x, w, b, residual = (t.detach() for t in self.arguments())
        loss = lambda *args: self.function(*args, activation=activation).square().sum()
        got = torch.func.grad(loss, argnums=(0, 1, 2, 3))(x, w, b, residual)
        leaves = [t.clone().requires_grad_() for t in (x, w, b, residual)]
        expected = torch.autograd.grad(loss(*leaves), leaves)
        for one, other in zip(got, expected):
            torch.testing.assert_close(one, other)
        hessian = torch.func.jacrev(torch.func.grad(loss))(x, w, b, residual)
        self.assertEqual(hessian.shape, x.shape + x.shape)

    @unittest.skipUnless(has_func and has_compile, "no torch.func or torch.compile")
    def test_compiled_function_transform_over_two_batch_sizes(self):
        for activation in ("none", "relu"):
            torch._dynamo.reset()
            _, w, b, mean, std, _ = (t.detach() for t in tensors(dtype=torch.double))

            def train(x, residual):
                y = ops.batch_renorm(x, w, b, mean, std, 1e-5, 3.0, 5.0, group_size=2, activation=activation,
                                     residual=residual)[0]
                return y.square().sum()

            def infer(x, residual):
                return ops.batch_renorm_inference(x, w, b, mean, std, activation, residual).square().sum()

            for loss in (train, infer):
                gradient = torch.func.grad(loss, argnums=(0, 1))
                compiled = torch.compile(gradient, backend="aot_eager", fullgraph=True, dynamic=True)
                for batch in (4, 6):
                    with self.subTest(activation=activation, loss=loss.__name__, batch=batch):
                        torch.manual_seed(5)
                        x, residual = torch.randn(2, batch, 3, 5, 5, dtype=torch.double)
                        for one, other in zip(compiled(x, residual), gradient(x, residual)):
                            torch.testing.assert_close(one, other)

    @unittest.skipUnless(has_func, "no torch.func")
    def test_bad_averages_raise_under_function_transforms(self):
        x, mean, bad = torch.randn(4, 2, 3), torch.zeros(2), torch.tensor([1.0, 0.0])
        not_contiguous = torch.tensor([[1.0, 9.0], [0.0, 9.0]])[:, 0]
        for std in (bad, not_contiguous):
            for function in (lambda x, std: ops.batch_renorm(x, None, None, mean, std)[0].sum(),
                             lambda x, std: ops.batch_renorm_inference(x, None, None, mean, std).sum()):
                with self.assertRaisesRegex(RuntimeError, "running_std must be finite and > 0, got 0 in channel 1"):
                    torch.func.grad(function)(x, std)
                with self.assertRaisesRegex(RuntimeError, "running_std must be finite and > 0, got 0 in channel 1"):
                    torch.func.grad(lambda x: function(x, std))(x)

    def test_forward_mode_raises(self):
        """Also without an argument that requires a gradient."""
        x, w, b, mean, std, residual = (t.detach() for t in tensors((4, 3)))
        step, clip, counts = torch.tensor(5), tuple(CLIP.values()), torch.zeros(4, dtype=torch.int64)
        calls = {
            "batch_renorm": lambda x, w: ops.batch_renorm(x, w, b, mean, std, residual=residual),
            "batch_renorm_step": lambda x, w: ops.batch_renorm_step(x, w, b, mean, std, step, *clip),
            "batch_renorm_inference": lambda x, w: ops.batch_renorm_inference(x, w, b, mean, std),
            "batch_renorm_train_": lambda x, w: ops.batch_renorm_train_(x, w, b, mean, std, step, counts, 0.1, *clip),
        }
        for name, call in calls.items():
            with self.subTest(operator=name), torch.autograd.forward_ad.dual_level():
                dual_x, dual_w = (torch.autograd.forward_ad.make_dual(t, torch.ones_like(t)) for t in (x, w))
                for arguments in ((dual_x, w), (x, dual_w)):
                    with self.assertRaisesRegex(RuntimeError, "forward-mode differentiation is not supported"):
                        call(*arguments)
        if has_func:
            with self.assertRaisesRegex(RuntimeError, "forward-mode differentiation is not supported"):
                torch.func.jvp(lambda x: calls["batch_renorm"](x, w)[0], (x,), (torch.ones_like(x),))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
