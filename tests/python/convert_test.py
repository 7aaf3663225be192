"""convert and revert: inference unchanged, everything else kept, bad input refused with the model untouched.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 convert_test.py
"""
import copy
import gc
import io
import re
import unittest
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils import prune

import renorm
from renorm import BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d, ClipSchedule
from renorm.convert import BatchNorm, FusedReLU
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
            if module.weight is not None:
                nn.init.uniform_(module.weight, 0.5, 1.5)
            if module.bias is not None:
                nn.init.normal_(module.bias)
    return model


def pruned(norm):
    return prune.l1_unstructured(norm, "weight", 1)


def own_forward():
    norm = nn.BatchNorm2d(3)
    norm.forward = lambda x: x
    return norm


def without(norm, *names):
    for name in names:
        setattr(norm, name, None)
    return norm


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
        constant = nn.BatchNorm1d(3, eps=0.0)
        constant.running_var[1] = 0.0
        x = torch.randn(8, 3)  # older batchnorms train with it, newer ones refuse eps 0 in training
        wide = x.double()
        self.close(renorm.convert(constant)(x), (wide - wide.mean(0)) / wide.std(0, unbiased=False))
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

    def test_weight_and_bias_are_separate(self):
        x = torch.randn(6, 3, generator=torch.Generator().manual_seed(5))
        for missing in (["weight"], ["bias"], ["weight", "bias"]):
            norm = randomize(without(nn.BatchNorm1d(3), *missing)).eval()
            expected = norm(x)
            made = renorm.convert(copy.deepcopy(norm))
            self.close(made(x), expected)
            self.assertEqual([name for name in ("weight", "bias") if getattr(made, name) is None], missing)
            self.assertEqual((made.affine, made.scale), (len(missing) == 1, missing != ["weight"]))
            made.clip = ClipSchedule.batch_norm()
            self.close(made.train()(x), copy.deepcopy(norm).train()(x), 1e-5)

    def test_buffers_decide_what_is_tracked(self):
        x = torch.randn(6, 3, generator=torch.Generator().manual_seed(5))
        norm = randomize(nn.BatchNorm1d(3)).eval()
        norm.track_running_stats = False
        self.close(renorm.convert(norm)(x), norm(x))
        norm = without(randomize(nn.BatchNorm1d(3)), "running_mean", "running_var").eval()
        self.close(renorm.convert(norm)(x), norm(x), 1e-5)

    def test_hooks_of_the_state_dict_are_kept(self):
        model, seen = nn.Sequential(nn.BatchNorm2d(3)), []
        norm = model[0]
        norm._register_state_dict_hook(lambda module, *_: seen.append(type(module)))
        norm._register_load_state_dict_pre_hook(lambda module, *_: seen.append(type(module)), with_module=True)
        norm.register_load_state_dict_post_hook(lambda module, _: seen.append(type(module)))
        renorm.convert(model)
        del norm
        gc.collect()
        model.load_state_dict(model.state_dict())
        self.assertEqual(seen, [BatchRenorm2d] * 3)
        renorm.revert(model).state_dict()
        self.assertIs(seen[-1], nn.BatchNorm2d)

    def test_attributes_are_kept(self):
        norm = nn.BatchNorm2d(3)
        norm.tag, norm.clip = "stem", 7
        made = renorm.convert(nn.Sequential(norm), clip=ramp())[0]
        self.assertEqual((made.tag, made.clip), ("stem", ramp()))
        back = renorm.revert(nn.Sequential(made))[0]
        self.assertEqual(back.tag, "stem")
        self.assertEqual(set(back.__dict__) - {"tag"}, set(nn.BatchNorm2d(3).__dict__))

    def test_a_norm_with_hooks_is_not_fused(self):
        x = self.x
        for register in ("register_forward_hook", "register_full_backward_hook"):
            model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()).eval()
            getattr(model[0], register)(lambda *_: None)
            renorm.convert(model, fuse_relu=True)
            self.assertEqual((model[0].activation, type(model[1])), ("none", nn.ReLU))
        model, seen = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()).eval(), []
        model[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
        renorm.convert(model, fuse_relu=True)(x)
        self.assertLess(seen[0].min().item(), 0)

    def test_exclude_wins_for_shared_layers(self):
        norm = nn.BatchNorm1d(3)
        model = nn.ModuleDict({"a": norm, "b": norm, "c": nn.BatchNorm1d(3)})
        renorm.convert(model, exclude="b")
        self.assertEqual([type(m) for m in model.values()], [nn.BatchNorm1d, nn.BatchNorm1d, BatchRenorm1d])

    def test_all_paths_of_a_shared_sequential_match(self):
        block = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())
        model = nn.ModuleDict({"a": block, "b": block})
        renorm.convert(model, include="b.*", fuse_relu=True)
        self.assertEqual((type(block[0]), type(block[1])), (BatchRenorm1d, FusedReLU))

    def test_tied_weights_stay_tied(self):
        for dtype in (torch.float32, torch.bfloat16, torch.half):
            model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3)).to(dtype)
            model[1].weight = model[0].weight
            renorm.convert(model)
            self.assertIs(model[1].weight, model[0].weight)
            self.assertIsNot(model[1].bias, model[0].bias)
            renorm.revert(model)
            self.assertIs(model[1].weight, model[0].weight)

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
            (small_net(), {"include": []}, ValueError, "selects no layer"),
            (small_net(), {"include": "6", "exclude": "*"}, ValueError, "selects no layer"),
            (nn.Sequential(nn.BatchNorm2d(3)), {"include": "9"}, ValueError, "layers are '0'$"),
            (nn.Sequential(*[nn.BatchNorm2d(3) for _ in range(4)]), {"include": "9"}, ValueError, "'0', '1', '2', ...$"),
            (nn.Sequential(nn.BatchNorm2d(3), pruned(nn.BatchNorm2d(3))), {}, TypeError, "weight of '1' is not a plain"),
            (nn.Sequential(nn.BatchNorm2d(3), own_forward()), {}, TypeError, "'1' has a forward of its own; exclude it"),
        ]:
            before = [type(module) for module in model.modules()]
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                renorm.convert(model, **options)
            self.assertEqual([type(module) for module in model.modules()], before)

    def test_what_is_not_a_module(self):
        for function in (renorm.convert, renorm.revert, renorm.fold):
            for model in (None, [nn.BatchNorm1d(3)], nn.BatchNorm1d):
                text = f"renorm.{function.__name__}: model must be a torch.nn.Module, got "
                with self.assertRaisesRegex(TypeError, text):
                    function(model)

    def test_keeps_the_device(self):
        model = renorm.convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to("meta"))
        self.assertTrue(all(tensor.is_meta for tensor in list(model.parameters()) + list(model.buffers())))
        self.assertTrue(model(torch.empty(2, 3, 8, 8, device="meta")).is_meta)
        with self.assertRaises(RuntimeError):
            model(torch.empty(2, 3, 8, 8))

    @unittest.skipIf(torchvision is None, "no torchvision")
    def test_the_lines_of_the_readme(self):
        readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
        (lines,) = re.findall(r"```python\n(.*?)```", readme, re.S)
        names = {}
        exec(lines, names)
        found = [layer for _, layer in renorm.layers(names["model"])]
        self.assertEqual(len(found), 53)
        self.assertEqual({type(layer) for layer in found}, {BatchRenorm2d})
        self.assertFalse(any(isinstance(module, nn.BatchNorm2d) for module in names["model"].modules()))
        self.assertEqual(found[0].clip, ClipSchedule.paper(20000))

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

    def test_weight_and_bias_are_separate(self):
        x = torch.randn(6, 3, generator=torch.Generator().manual_seed(5))
        for missing in (["weight"], ["bias"], ["weight", "bias"]):
            layer = without(BatchRenorm1d(3).eval(), *missing)
            for parameter in layer.parameters():
                nn.init.constant_(parameter, 5)
            made = renorm.revert(layer)
            self.close(made(x), layer(x))
            for parameter in [getattr(made, name) for name in missing if made.affine]:
                self.assertFalse(parameter.requires_grad)

    def test_any_rank(self):
        model = nn.Sequential(nn.Linear(3, 3), randomize(nn.SyncBatchNorm(3))).eval()
        renorm.convert(model)
        for shape in ([4, 3], [4, 5, 3], [2, 3, 3, 3]):
            x = torch.randn(shape)
            if len(shape) == 3:
                x = x.transpose(1, 2)
            layer, made = model[1], renorm.revert(copy.deepcopy(model))[1]
            self.close(made(x), layer(x))
        self.assertIs(type(made), BatchNorm)
        with self.assertRaisesRegex(ValueError, r"BatchNorm: input must be \[N, C, ...\], got 1 dimensions"):
            made(torch.randn(3))
        again = renorm.convert(copy.deepcopy(made))
        self.assertIs(type(again), BatchRenorm)
        self.close(again(x), made(x))
        buffer = io.BytesIO()
        torch.save(made.state_dict(), buffer)

    def test_the_relu_is_as_it_was(self):
        model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.BatchNorm2d(3), nn.ReLU())
        renorm.convert(model, fuse_relu=True)
        self.assertEqual((repr(model[1]), repr(model[3])), ("FusedReLU(inplace=True)", "FusedReLU()"))
        renorm.revert(model)
        self.assertEqual((model[1].inplace, model[3].inplace), (True, False))

    def test_hooks_of_a_layer_with_a_relu_of_its_own(self):
        model, seen = nn.Sequential(BatchRenorm1d(3, activation="relu")).eval(), []
        model[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
        x = torch.randn(4, 3)
        model(x)
        renorm.revert(model)(x)
        self.assertEqual(len(seen), 2)
        self.close(seen[0], seen[1])

    def test_meta_device(self):
        layer = BatchRenorm2d(3, device="meta", scale=False)
        made = renorm.revert(nn.Sequential(layer))[0]
        self.assertTrue(made.running_var.is_meta and made.weight.is_meta)

    def test_bad_input(self):
        layer = BatchRenorm1d(3)
        layer.running_std.fill_(1e-4)
        with self.assertRaisesRegex(ValueError, r"running_std of '0' is below sqrt\(eps\)"):
            renorm.revert(nn.Sequential(layer))
        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer"):
            renorm.revert(nn.Linear(2, 2))
        with self.assertRaisesRegex(ValueError, "selects no layer"):
            renorm.revert(BatchRenorm1d(3), include=[])
        with self.assertRaisesRegex(TypeError, "weight of '' is not a plain parameter"):
            renorm.revert(pruned(BatchRenorm1d(3)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
