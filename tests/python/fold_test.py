"""fold: inference unchanged; a pair that is not certain is left alone.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 fold_test.py
"""
import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import renorm
from convert_test import small_net
from renorm import BatchRenorm, BatchRenorm1d, BatchRenorm2d
from support import Case


def trained(norm):
    """In evaluation mode, with averages and parameters as after training."""
    norm.running_mean.normal_()
    norm.running_std.uniform_(0.5, 2)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm.eval()


class Net(nn.Module):
    """Two pairs. `run` is the forward of the second."""

    def __init__(self, run, second=None, channels=3):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 3, 1), trained(BatchRenorm2d(3)))
        self.conv = nn.Conv2d(3, channels, 1) if second is None else second
        self.norm = trained(BatchRenorm2d(channels))
        self.run = run
        self.eval()

    def forward(self, x):
        return self.run(self, self.first(x))


def in_turn(net, x):
    return net.norm(net.conv(x))


class Fold(Case):
    x = property(lambda self: torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(3)))

    def folds_first_only(self, model, x=None):
        """`first` is folded, the second pair is left alone, and inference is unchanged."""
        x = self.x if x is None else x
        expected = model(x)
        renorm.fold(model)
        self.assertIsInstance(model.first[1], nn.Identity)
        self.assertTrue(renorm.layers(model))
        self.close(model(x), expected, 1e-5)

    def test_inference_is_unchanged(self):
        model = renorm.convert(small_net(), fuse_relu=True)
        x = torch.randn(4, 3, 8, 8)
        expected = model(x)
        renorm.fold(model)
        self.assertEqual(renorm.layers(model), [])
        self.close(model(x), expected, 1e-5)

    def test_pairs_in_a_forward(self):
        model = Net(in_turn, channels=4)
        expected = model(self.x)
        renorm.fold(model)
        self.assertEqual(renorm.layers(model), [])
        self.close(model(self.x), expected, 1e-5)

    def test_weight_and_bias_are_separate(self):
        for missing in ("weight", "bias"):
            model = Net(in_turn)
            setattr(model.norm, missing, None)
            expected = model(self.x)
            self.close(renorm.fold(model)(self.x), expected, 1e-5)
            self.assertEqual(renorm.layers(model), [])

    def test_outputs_with_another_user(self):
        def run(net, x):
            y = net.conv(x)
            return net.norm(y) + y

        self.folds_first_only(Net(run))

    def test_residuals(self):
        self.folds_first_only(Net(lambda net, x: net.norm(net.conv(x), residual=x)))
        self.folds_first_only(Net(lambda net, x: net.norm(net.conv(x), x)))

    def test_weights_that_are_computed(self):
        for wrap in (nn.utils.weight_norm, nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm):
            self.folds_first_only(Net(in_turn, wrap(nn.Conv2d(3, 3, 1))))

    def test_norms_with_computed_weights(self):
        model = Net(in_turn)
        nn.utils.parametrize.register_parametrization(model.norm, "weight", nn.Tanh())
        self.folds_first_only(model)

    def test_hooks(self):
        for name in ("conv", "norm"):
            for register in ("register_forward_hook", "register_forward_pre_hook"):
                model, seen = Net(in_turn), []
                getattr(getattr(model, name), register)(lambda *values: seen.append(values[-1]))
                self.folds_first_only(model)
                self.assertEqual(len(seen), 2)

    def test_hooks_of_a_module_around_one_of_the_two(self):
        model = Net(in_turn, nn.Sequential(nn.Conv2d(3, 3, 1)))
        model.conv.register_forward_hook(lambda module, inputs, output: None)
        self.folds_first_only(model)

    def test_a_weight_that_is_read_elsewhere(self):
        self.folds_first_only(Net(lambda net, x: F.conv_transpose2d(net.norm(net.conv(x)), net.conv.weight)))
        self.folds_first_only(Net(lambda net, x: net.norm(net.conv(x)) * net.norm.bias[0]))

    def test_a_weight_in_two_modules(self):
        model = Net(lambda net, x: net.other(net.norm(net.conv(x))))
        model.other = nn.ConvTranspose2d(3, 3, 1).eval()
        model.other.weight = model.conv.weight
        self.folds_first_only(model)

    def test_norms_that_use_the_batch(self):
        model = Net(in_turn)
        model.norm.train()
        renorm.fold(model)
        self.assertEqual([path for path, _ in renorm.layers(model)], ["norm"])
        model = Net(in_turn)
        model.norm.batch_statistics = True
        self.folds_first_only(model)
        model = Net(in_turn)
        model.norm.num_batches_tracked = None
        self.folds_first_only(model)

    def test_norms_over_another_dimension(self):
        class Rows(nn.Module):
            def __init__(self, kind, features):
                super().__init__()
                self.first = nn.Sequential(nn.Linear(3, 3), trained(BatchRenorm1d(3)))
                self.linear, self.norm = nn.Linear(2, features), trained(kind(5))

            def forward(self, x):
                return self.norm(self.linear(self.first(x)[:, None, None, :2].expand(4, 5, 5, 2)))

        self.folds_first_only(Rows(BatchRenorm, 3).eval(), torch.randn(4, 3))
        self.folds_first_only(Rows(BatchRenorm2d, 5).eval(), torch.randn(4, 3))

    def test_subclasses_are_left_alone(self):
        class Own(BatchRenorm2d):
            def forward(self, input, residual=None):
                return super().forward(input, residual) * 2

        model = Net(in_turn)
        model.norm = trained(Own(3))
        self.folds_first_only(model)

    def test_only_uncertain_pairs(self):
        model = nn.Sequential(nn.Conv2d(3, 3, 1), BatchRenorm2d(3)).eval()
        model[0].register_forward_hook(lambda *_: None)
        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer directly follows"):
            renorm.fold(model)


class Untraceable(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.eval()

    def forward(self, x):
        if x.sum() == 12345:
            return x
        for part in self.parts:
            x = part(x)
        return x


class FoldWithoutAGraph(Case):
    def same_after(self, model, left):
        x = torch.randn(4, 3, 5, 5)
        expected = model(x)
        renorm.fold(model)
        self.assertEqual(len(renorm.layers(model)), left)
        self.close(model(x), expected, 1e-5)

    def pair(self):
        return nn.Sequential(nn.Conv2d(3, 3, 1), trained(BatchRenorm2d(3, activation="relu")))

    def test_neighbours_in_a_sequential(self):
        self.same_after(Untraceable(self.pair(), self.pair()), 0)

    def test_shared_layers(self):
        conv = nn.Conv2d(3, 3, 1)
        norms = [trained(BatchRenorm2d(3)) for _ in range(2)]
        self.same_after(Untraceable(self.pair(), *[nn.Sequential(conv, norm) for norm in norms]), 2)
        self.same_after(Untraceable(self.pair(), *[nn.Sequential(nn.Conv2d(3, 3, 1), norms[0]) for _ in range(2)]), 1)
        self.same_after(Untraceable(self.pair(), nn.Sequential(conv, norms[0]), nn.Sequential(conv)), 1)

    def test_shared_sequentials(self):
        shared = self.pair()
        self.same_after(Untraceable(shared, shared), 0)

    def test_hooks_and_computed_weights(self):
        hooked, computed = self.pair(), self.pair()
        hooked[1].register_forward_hook(lambda *_: None)
        nn.utils.weight_norm(computed[0])
        self.same_after(Untraceable(self.pair(), hooked, computed), 2)


class BadInput(Case):
    def test_models_that_cannot_be_folded(self):
        with self.assertRaisesRegex(ValueError, "call model.eval"):
            renorm.fold(BatchRenorm1d(3))
        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer"):
            renorm.fold(nn.Linear(2, 2).eval())
        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer directly follows"):
            renorm.fold(nn.Sequential(BatchRenorm1d(3), nn.Linear(3, 3)).eval())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
