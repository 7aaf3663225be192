"""The layers: the mathematics, modes, deferred statistics and telemetry.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 layer_test.py
"""
import copy
import unittest
import warnings

import torch

import renorm
from renorm import BatchRenorm1d, BatchRenorm2d, BatchRenorm3d, ClipSchedule
from support import Case, ramp, reference, trained

SHAPES = {BatchRenorm1d: [(6, 3), (6, 3, 7)], BatchRenorm2d: [(6, 3, 4, 5)], BatchRenorm3d: [(6, 3, 2, 3, 4)]}


class Training(Case):
    def test_agrees_with_the_formulas(self):
        cases = [
            {},
            {"group_size": 2},
            {"group_size": 3, "grouping": "strided", "activation": "relu"},
            {"scale": False, "momentum": 0.3},
            {"affine": False, "activation": "relu"},
            {"momentum": None},
        ]
        for kind, shapes in SHAPES.items():
            for shape in shapes:
                for options in cases:
                    with self.subTest(kind=kind.__name__, shape=shape, **options):
                        self.check_formulas(kind(3, clip=ramp(), **options), shape)

    def check_formulas(self, layer, shape):
        if layer.weight is not None:
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
        for step in range(12):
            x = torch.randn(shape) * 2 + 1
            expected, means, stds = reference(x, layer)
            momentum = 1 / (step + 1) if layer.momentum is None else layer.momentum
            mean = layer.running_mean.double() + momentum * (means.mean(0) - layer.running_mean.double())
            std = layer.running_std.double() + momentum * (stds.mean(0) - layer.running_std.double())
            self.close(layer(x), expected, 1e-5)
            self.close(layer.running_mean, mean, 1e-5)
            self.close(layer.running_std, std, 1e-5)
            self.assertEqual(layer.num_batches_tracked.item(), step + 1)

    def test_residual_is_added_before_the_activation(self):
        for activation in ("none", "relu"):
            layer = trained(BatchRenorm2d(3, clip=ramp(), activation=activation), 5)
            x, residual = torch.randn(6, 3, 4, 5), torch.randn(6, 3, 4, 5, requires_grad=True)
            expected, _, _ = reference(x, layer, residual)
            output = layer(x, residual)
            self.close(output, expected, 1e-5)
            output.sum().backward()
            mask = (expected > 0) if activation == "relu" else torch.ones_like(expected)
            self.close(residual.grad, mask.double())
            layer.eval()
            expected = (x - layer.running_mean[:, None, None]) / layer.running_std[:, None, None] + residual
            self.close(layer(x, residual), expected.relu() if activation == "relu" else expected, 1e-5)

    def test_channels_last_is_kept(self):
        layer = BatchRenorm2d(4, activation="relu")
        for x in (torch.randn(4, 4, 5, 5), torch.randn(4, 4, 5, 5).contiguous(memory_format=torch.channels_last)):
            self.assertEqual(layer(x).stride(), x.stride())
            self.assertEqual(layer.eval()(x).stride(), x.stride())
            layer.train()

    def test_channels_last_has_the_values_and_gradients_of_the_formulas(self):
        for options in ({}, {"activation": "relu"}, {"group_size": 2}):
            with self.subTest(**options):
                layer, other = (BatchRenorm2d(4, clip=ramp(), **options) for _ in range(2))
                x = torch.randn(4, 4, 5, 5).mul(3).add(1)
                last = x.contiguous(memory_format=torch.channels_last).requires_grad_()
                x.requires_grad_()
                for _ in range(4):
                    expected, _, _ = reference(x.detach(), layer)
                    weights = torch.randn(4, 4, 5, 5)
                    gradients = []
                    for one, input in ((layer, x), (other, last)):
                        output = one(input)
                        self.close(output, expected, 2e-6)
                        gradients.append(torch.autograd.grad((output * weights).sum(), [input, one.weight, one.bias]))
                    for one, two in zip(*gradients):
                        self.close(one, two, 2e-6)
                self.close(layer.running_std, other.running_std)

    def test_gradients(self):
        # The limits hold r and d fixed, so differences of the function are derivatives of it.
        for options in ({}, {"group_size": 3, "grouping": "strided"}, {"activation": "relu"}, {"scale": False}):
            with self.subTest(**options):
                layer = BatchRenorm1d(2, 1e-3, 0.0, clip=ClipSchedule.constant(1.5, 0.7), dtype=torch.double, **options)
                layer.running_mean.fill_(1e4)
                layer.running_std.fill_(1e-2)
                x = torch.randn(6, 2, 3, dtype=torch.double, requires_grad=True)
                residual = torch.randn(6, 2, 3, dtype=torch.double, requires_grad=True)
                parameters = tuple(layer.parameters())

                def function(x, residual, *_):
                    return layer(x, residual)

                self.assertTrue(torch.autograd.gradcheck(function, (x, residual) + parameters))
                if "activation" not in options:
                    self.assertTrue(torch.autograd.gradgradcheck(function, (x, residual) + parameters))
                layer.eval()
                layer.running_mean.zero_()
                layer.running_std.fill_(1.5)
                self.assertTrue(torch.autograd.gradcheck(function, (x, residual) + parameters))

    def test_gradients_agree_with_autograd_of_the_formulas(self):
        layer = trained(BatchRenorm2d(3, clip=ClipSchedule.constant(1.05, 0.1), activation="relu"), 5)
        x = (torch.randn(6, 3, 4, 5) * 2).requires_grad_()
        grad = torch.randn(6, 3, 4, 5)
        mean, std = layer.running_mean.clone(), layer.running_std.clone()
        got = torch.autograd.grad(layer(x), (x, layer.weight, layer.bias), grad)
        wide = x.detach().double().requires_grad_()
        weight, bias = (p.detach().double().requires_grad_() for p in (layer.weight, layer.bias))
        batch_mean = wide.mean((0, 2, 3), keepdim=True)
        batch_std = (wide.var((0, 2, 3), unbiased=False, keepdim=True) + layer.eps).sqrt()
        shape = (1, 3, 1, 1)
        r = (batch_std.detach() / std.reshape(shape)).clamp(1 / 1.05, 1.05)
        d = ((batch_mean.detach() - mean.reshape(shape)) / std.reshape(shape)).clamp(-0.1, 0.1)
        y = (((wide - batch_mean) / batch_std * r + d) * weight.reshape(shape) + bias.reshape(shape)).relu()
        for one, other in zip(got, torch.autograd.grad(y, (wide, weight, bias), grad.double())):
            self.close(one, other, 1e-5)

    def test_empty_batch_changes_nothing(self):
        layer = trained(BatchRenorm2d(3))
        before = {key: value.clone() for key, value in layer.state_dict().items()}
        self.assertEqual(layer(torch.empty(0, 3, 4, 5)).shape, (0, 3, 4, 5))
        for key, value in layer.state_dict().items():
            self.same(value, before[key])

    def test_statistics_that_are_not_finite_raise_and_change_nothing(self):
        layer = trained(BatchRenorm2d(3))
        before = {key: value.clone() for key, value in layer.state_dict().items()}
        x = torch.randn(6, 3, 4, 5)
        x[0, 1] = float("nan")
        with self.assertRaisesRegex(RuntimeError, "batch statistics of channel 1 are not finite"):
            layer(x)
        for key, value in layer.state_dict().items():
            self.same(value, before[key])

    def test_the_output_may_be_changed_in_place(self):
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 5)
        other = copy.deepcopy(layer)
        x = torch.randn(6, 3, 4, 5)
        layer(x).mul_(2).sum().backward()
        (other(x) * 2).sum().backward()
        self.close(layer.weight.grad, other.weight.grad)

    def test_without_averages_it_is_batchnorm(self):
        layer = BatchRenorm2d(3, track_running_stats=False)
        norm = torch.nn.BatchNorm2d(3, track_running_stats=False)
        x = torch.randn(6, 3, 4, 5)
        self.close(layer(x), norm(x), 1e-5)
        self.close(layer.eval()(x), norm.eval()(x), 1e-5)


class Modes(Case):
    def test_evaluation_uses_the_averages(self):
        layer = trained(BatchRenorm2d(3))
        norm = torch.nn.BatchNorm2d(3, eps=0.0).eval()
        norm.running_mean.copy_(layer.running_mean)
        norm.running_var.copy_(layer.running_std.square())
        x = torch.randn(6, 3, 4, 5)
        self.close(layer.eval()(x), norm(x), 1e-5)

    def test_unlimited_training_equals_evaluation(self):
        layer = trained(BatchRenorm2d(3, clip=ClipSchedule.unlimited(), group_size=2))
        other = copy.deepcopy(layer).eval()
        x = torch.randn(6, 3, 4, 5)
        self.close(layer(x), other(x), 1e-5)

    def test_batch_statistics_in_evaluation(self):
        layer = trained(BatchRenorm2d(3)).eval()
        x = torch.randn(6, 3, 4, 5)
        with renorm.use_batch_statistics(layer):
            self.close(layer(x), torch.nn.BatchNorm2d(3)(x), 1e-5)
        self.close(layer(x), copy.deepcopy(layer)(x), 0)
        self.assertEqual(layer.num_batches_tracked.item(), 3)

    def test_gradient_in_evaluation_uses_the_averages_of_the_call(self):
        layer = trained(BatchRenorm2d(3)).eval()
        x = torch.randn(6, 3, 4, 5, requires_grad=True)
        expected = 1 / layer.running_std[None, :, None, None].expand_as(x).clone()
        y = layer(x)
        layer.running_std.mul_(2)
        y.sum().backward()
        self.close(x.grad, expected)

    def test_hold_warns_once_at_evaluation(self):
        layer = trained(BatchRenorm2d(3))
        with self.assertWarnsRegex(UserWarning, "plain batchnorm so far.*ClipSchedule.paper"):
            layer.eval()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trained(BatchRenorm2d(3, clip=ClipSchedule.paper(20000))).eval()
            BatchRenorm2d(3).eval()

    def test_hold_warns_of_steps_that_were_not_counted(self):
        for commits, text in ((0, "plain batchnorm so far, because no training step was counted.*commit"),
                              (1, "after 1 training step this layer has been plain batchnorm so far.*ClipSchedule.paper")):
            renorm._checks.warned.clear()
            layer = BatchRenorm2d(3, statistics="deferred")
            for i in range(2):
                layer(torch.randn(4, 3, 5, 5))
                if i < commits:
                    layer.commit()
            with self.subTest(commits=commits), self.assertWarnsRegex(UserWarning, text):
                layer.eval()


class Deferred(Case):
    def test_averages_move_once_by_the_mean_over_all_groups(self):
        plain = BatchRenorm2d(3, clip=ramp(), group_size=2)
        parts = BatchRenorm2d(3, clip=ramp(), group_size=2)
        model = torch.nn.Sequential(parts)
        for _ in range(5):
            x = torch.randn(8, 3, 4, 5) + 1
            plain(x)
            with renorm.deferred(model):
                outputs = [model(x[:6]), model(x[6:])]  # 3 groups and 1
            self.close(parts.running_mean, plain.running_mean, 1e-6)
            self.close(parts.running_std, plain.running_std, 1e-6)
        self.assertEqual(parts.num_batches_tracked.item(), 5)
        self.assertEqual(parts.statistics, "immediate")
        self.assertEqual(outputs[1].shape[0], 2)

    def test_commit_and_discard(self):
        layer = BatchRenorm2d(3, statistics="deferred")
        self.assertEqual(renorm.commit(layer), 0)
        layer(torch.randn(4, 3, 5, 5))
        self.assertEqual(layer.num_batches_tracked.item(), 0)
        renorm.discard(layer)
        self.assertEqual(renorm.commit(layer), 0)
        layer(torch.randn(4, 3, 5, 5))
        self.assertEqual(renorm.commit(layer), 1)
        self.assertEqual(layer.num_batches_tracked.item(), 1)

    def test_an_exception_discards(self):
        layer = BatchRenorm2d(3)
        with self.assertRaises(KeyError):
            with renorm.deferred(layer):
                layer(torch.randn(4, 3, 5, 5))
                raise KeyError
        self.assertEqual(layer.collected_groups.item(), 0)
        self.assertEqual(layer.num_batches_tracked.item(), 0)

    def test_statistics_that_are_not_finite_move_no_layer(self):
        model = torch.nn.Sequential(BatchRenorm1d(2), torch.nn.Linear(2, 2), BatchRenorm1d(2))
        with torch.no_grad():
            model[1].weight.fill_(float("inf"))
        with self.assertRaisesRegex(RuntimeError, "not finite"):
            with renorm.deferred(model):
                model(torch.randn(8, 2))
        self.same(model[0].running_mean, torch.zeros(2))
        self.assertEqual(model[0].num_batches_tracked.item(), 0)

    def test_loading_clears_what_was_collected(self):
        layer = BatchRenorm2d(3, statistics="deferred")
        layer(torch.randn(4, 3, 5, 5))
        layer.load_state_dict(BatchRenorm2d(3).state_dict())
        self.assertEqual(renorm.commit(layer), 0)

    def test_evaluation_before_commit_warns(self):
        layer = BatchRenorm2d(3, statistics="deferred", clip=ramp())
        layer(torch.randn(4, 3, 5, 5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layer.eval()
        with self.assertWarnsRegex(UserWarning, "statistics of 1 groups are not in the averages"):
            layer(torch.randn(4, 3, 5, 5))

    def test_a_layer_that_becomes_immediate_forgets_what_it_collected(self):
        layer = BatchRenorm1d(2, statistics="deferred", momentum=1.0)
        layer(torch.randn(8, 2) + 1000)
        renorm.set_statistics(layer, "immediate")
        layer(torch.randn(8, 2))
        renorm.set_statistics(layer, "deferred")
        layer(torch.randn(8, 2))
        renorm.commit(layer)
        self.assertLess(layer.running_mean.abs().max().item(), 10)

    def test_nested_contexts_are_one_step(self):
        layer = BatchRenorm1d(2)
        with renorm.deferred(layer):
            with renorm.deferred(layer):
                layer(torch.randn(8, 2))
            layer(torch.randn(8, 2))
        self.assertEqual(layer.num_batches_tracked.item(), 1)
        self.assertEqual(layer.statistics, "immediate")


class Telemetry(Case):
    def test_fractions(self):
        layer = BatchRenorm1d(2, clip=ClipSchedule.constant(2.0, 1.0), momentum=0.0)
        layer.running_std.copy_(torch.tensor([0.1, 10.0]))
        layer(torch.randn(64, 2) + torch.tensor([0.0, 100.0]))
        told = renorm.clip_telemetry(torch.nn.Sequential(layer))["0"]
        self.assertEqual(told, renorm.ClipTelemetry(2, 0.5, 0.5, 0.5))
        renorm.clear_clip_telemetry(layer)
        self.assertEqual(renorm.clip_telemetry(layer)[""].values, 0)


if __name__ == "__main__":
    unittest.main()
