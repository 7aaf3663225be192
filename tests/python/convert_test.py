"""convert, revert and fold: inference unchanged, everything else kept, bad input refused with the model untouched.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 convert_test.py
"""
import copy
import unittest
import warnings

import torch
from torch import nn

import renorm
from renorm import BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d, ClipSchedule
from support import Case, ramp

try:
    import torchvision
except ImportError:
    torchvision = None


def randomize(model):
    """Averages, weights and biases of all norms as after training."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.running_mean is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
    return model


def small_net():
    return randomize(nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
        nn.Sequential(nn.Conv2d(4, 5, 3, bias=False), nn.BatchNorm2d(5), nn.Tanh()),
        nn.Flatten(), nn.Linear(5 * 4 * 4, 6), nn.BatchNorm1d(6), nn.ReLU())).eval()


class Convert(Case):
    x = property(lambda self: torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(3)))

    def test_inference_is_unchanged(self):
        for fuse in (False, True):
            model = small_net()
            expected = model(self.x)
            self.assertIs(renorm.convert(model, clip=ramp(), fuse_relu=fuse), model)
            self.assertEqual([path for path, _ in renorm.layers(model)], ["1", "3.1", "6"])
            self.close(model(self.x), expected, 1e-5)
            self.assertEqual(model[1].clip, ramp())
            self.assertEqual(model[1].activation, "relu" if fuse else "none")
            self.assertEqual(model[3][1].activation, "none")
            self.assertFalse(model[1].training)

    def test_kinds_and_options(self):
        for old, new in ((nn.BatchNorm1d, BatchRenorm1d), (nn.BatchNorm2d, BatchRenorm2d), (nn.BatchNorm3d, BatchRenorm3d),
                         (nn.SyncBatchNorm, BatchRenorm)):
            norm = old(3, eps=1e-3, momentum=0.2)
            made = renorm.convert(norm)
            self.assertIs(type(made), new)
            self.assertEqual((made.eps, made.momentum, made.num_batches_tracked.item()), (1e-3, 0.2, 0))
        made = renorm.convert(nn.BatchNorm1d(3, eps=0.0, momentum=None, affine=False))
        self.assertGreater(made.eps, 0)
        self.assertIsNone(made.momentum)
        self.assertIsNone(made.bias)
        norm = nn.BatchNorm1d(3, momentum=None)
        norm(torch.randn(8, 3))
        self.assertEqual(renorm.convert(norm).num_batches_tracked.item(), 1)
        self.assertIsNone(renorm.convert(nn.BatchNorm2d(3, track_running_stats=False)).running_mean)

    def test_std_follows_from_var_and_eps(self):
        norm = randomize(nn.BatchNorm2d(3, eps=0.1))
        made = renorm.convert(norm)
        self.close(made.running_std, (norm.running_var + 0.1).sqrt())

    def test_everything_else_is_kept(self):
        model = small_net()
        model[1].weight.requires_grad_(False)
        model[1].train()
        weight, seen = model[1].bias, []
        model[1].register_forward_hook(lambda module, inputs, output: seen.append(type(module)))
        model[3].double()
        renorm.convert(model)
        self.assertIs(model[1].bias, weight)  # an optimizer may hold it
        self.assertFalse(model[1].weight.requires_grad)
        self.assertTrue(model[1].training)
        self.assertEqual(model[3][1].running_std.dtype, torch.double)
        model[1](torch.randn(2, 4, 3, 3))
        self.assertEqual(seen, [BatchRenorm2d])

    def test_shared_layers_stay_shared(self):
        norm = nn.BatchNorm1d(3)
        model = nn.ModuleDict({"a": norm, "b": nn.Sequential(norm)})
        renorm.convert(model)
        self.assertIs(model["a"], model["b"][0])

    def test_narrow_models(self):
        model = nn.Sequential(nn.BatchNorm2d(3)).bfloat16()
        renorm.convert(model)
        self.assertEqual(model[0].running_std.dtype, torch.float)
        self.assertEqual(model(torch.randn(4, 3, 5, 5).bfloat16()).dtype, torch.bfloat16)

    def test_include_and_exclude(self):
        model = renorm.convert(small_net(), include="3.*")
        self.assertEqual([path for path, _ in renorm.layers(model)], ["3.1"])
        model = renorm.convert(small_net(), exclude=["3.*", "6"])
        self.assertEqual([path for path, _ in renorm.layers(model)], ["1"])

    def test_bad_input_leaves_the_model_alone(self):
        class Own(nn.BatchNorm2d):
            pass

        for model, options, kind, text in [
            (nn.Linear(2, 2), {}, ValueError, "no BatchNorm layer"),
            (small_net(), {"include": "trunk.*"}, ValueError, r"include pattern 'trunk.\*' matches no layer"),
            (small_net(), {"exclude": ["9"]}, ValueError, "exclude pattern '9' matches no layer"),
            (small_net(), {"clip": 100}, TypeError, "clip must be a ClipSchedule"),
            (nn.Sequential(nn.BatchNorm2d(3), Own(3)), {}, TypeError, "'1' is a Own, not a plain BatchNorm; exclude it"),
            (nn.Sequential(nn.BatchNorm2d(3), nn.LazyBatchNorm2d()), {}, TypeError, "run one forward first"),
        ]:
            before = [type(module) for module in model.modules()]
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                renorm.convert(model, **options)
            self.assertEqual([type(module) for module in model.modules()], before)

    @unittest.skipIf(torchvision is None, "no torchvision")
    def test_torchvision(self):
        for name, fused in (("resnet18", 0), ("mobilenet_v2", 0), ("densenet121", 1), ("googlenet", 0)):
            options = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
            model = randomize(getattr(torchvision.models, name)(**options)).eval()
            x = torch.randn(2, 3, 64, 64)
            with torch.no_grad():
                expected = model(x)
                renorm.convert(model, clip=ClipSchedule.unlimited(), fuse_relu=True)
                self.close(model(x), expected, 1e-4)  # tens of layers, each within a few roundings
                self.assertEqual(any(isinstance(m, renorm.FusedReLU) for m in model.modules()), bool(fused))
                model.train()(x)
                model.eval()
                expected = model(x)
                self.close(renorm.revert(copy.deepcopy(model))(x), expected, 1e-4)
                if name != "densenet121":  # its norms come before convolutions
                    self.assertEqual(len(renorm.layers(renorm.fold(model))), 0)
                    self.close(model(x), expected, 1e-4)


class Revert(Case):
    def test_there_and_back(self):
        for fuse in (False, True):
            original = small_net()
            model = renorm.revert(renorm.convert(copy.deepcopy(original), fuse_relu=fuse))
            self.assertEqual([type(m) for m in model.modules()], [type(m) for m in original.modules()])
            for (key, one), other in zip(model.state_dict().items(), original.state_dict().values()):
                self.close(one, other)

    def test_inference_is_unchanged_after_training(self):
        model = renorm.convert(small_net(), clip=ClipSchedule.constant(3, 5)).train()
        for _ in range(5):
            model(torch.randn(4, 3, 8, 8) * 3)
        model.eval()
        x = torch.randn(4, 3, 8, 8)
        expected = model(x)
        self.close(renorm.revert(model)(x), expected, 1e-6)
        self.assertEqual(model[1].num_batches_tracked.item(), 5)

    def test_layers_with_a_relu_of_their_own(self):
        layer = BatchRenorm1d(3, activation="relu", scale=False).eval()
        model = nn.Sequential(layer)
        x = torch.randn(4, 3)
        expected = model(x)
        renorm.revert(model)
        self.close(model(x), expected)
        self.assertIsInstance(model[0], nn.Sequential)
        self.assertFalse(model[0].norm.weight.requires_grad)

    def test_bad_input(self):
        layer = BatchRenorm1d(3)
        layer.running_std.fill_(1e-4)
        with self.assertRaisesRegex(ValueError, r"running_std of '0' is below sqrt\(eps\)"):
            renorm.revert(nn.Sequential(layer))
        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer"):
            renorm.revert(nn.Linear(2, 2))


class Fold(Case):
    def test_inference_is_unchanged(self):
        model = renorm.convert(small_net(), fuse_relu=True)
        x = torch.randn(4, 3, 8, 8)
        expected = model(x)
        renorm.fold(model)
        self.assertEqual(renorm.layers(model), [])
        self.close(model(x), expected, 1e-5)

    def test_only_certain_pairs_are_folded(self):
        class Branch(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 3, 1), BatchRenorm2d(3)

            def forward(self, x):
                y = self.conv(x)
                return self.norm(y) + y  # the convolution has another user

        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer directly follows"):
            renorm.fold(Branch().eval())

    def test_a_model_that_cannot_be_traced(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(3, 3), BatchRenorm1d(3))

            def forward(self, x):
                return self.body(x) if x.sum() > 0 else x

        model = Odd().eval()
        renorm.fold(model)
        self.assertEqual(renorm.layers(model), [])

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "call model.eval"):
            renorm.fold(BatchRenorm1d(3))
        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer"):
            renorm.fold(nn.Linear(2, 2).eval())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
