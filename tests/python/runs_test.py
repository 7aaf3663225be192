"""renorm.load_run: models of `renorm train` and `renorm export` against `renorm predict`.

usage: RENORM_COMMAND=path/to/renorm PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 runs_test.py
"""
import copy
import json
import math
import os
import pickle
import shutil
import struct
import subprocess
import tempfile
import unittest
import warnings
import zlib
from pathlib import Path

import torch

import renorm
from renorm import _nets
from renorm._blocks import InputShape

try:
    import torchvision
except ImportError:
    torchvision = None

COMMAND = os.environ.get("RENORM_COMMAND", "")


def noise(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def write_png(path, image):
    """uint8 [channels, height, width] of 1 or 3 channels."""
    channels, height, width = image.shape
    rows = image.permute(1, 2, 0).reshape(height, width * channels)
    lines = b"".join(b"\0" + bytes(row.tolist()) for row in rows)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def run_command(*arguments):
    result = subprocess.run([COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise AssertionError(f"renorm {' '.join(map(str, arguments))}: {result.stdout}{result.stderr}")
    return result.stdout


def log_probabilities(model, files, *flags):
    """[image, class] as `renorm predict` prints them."""
    printed = json.loads(run_command("predict", model, *files, "--json", "--top", 1000, "--threads", 1, *flags))
    rows = []
    for image in printed["images"]:
        row = {guess["index"]: math.log(guess["probability"]) for guess in image["predictions"]}
        rows.append([row[i] for i in range(len(row))])
    return torch.tensor(rows, dtype=torch.float64)


class CommandCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not COMMAND:
            raise unittest.SkipTest("RENORM_COMMAND does not name the renorm command")
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        if COMMAND:
            cls.temporary.cleanup()

    def train(self, name, *flags, steps=4, data="strokes:classes=7,train=8,test=2"):
        out = self.folder / name
        clip = () if "--norm" in flags else ("--clip", "3,5")
        momentum = () if "groupnorm" in flags else ("--norm-momentum", 0.3)
        run_command("train", "--out", out, "--data", data, "--steps", steps, "--eval-every", steps, "--minibatch", 8,
                    "--threads", 1, "--quiet", *momentum, *clip, *flags)
        return out

    def check(self, model, path, files, images, *flags):
        """The model's logits are those of `renorm predict`, but for a constant per image."""
        with torch.no_grad():
            logits = model(model.card.standardize(images))
        expected = log_probabilities(path, files, *flags)
        self.assertEqual(len(model.card.classes), expected.shape[1])
        difference = logits.double().log_softmax(1) - expected
        self.assertLess(difference.abs().max().item(), 1e-5)


class SmallNets(CommandCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.manual_seed(1)
        cls.images = noise(5, 1, 20, 20)
        cls.files = [cls.folder / f"{i}.png" for i in range(5)]
        for path, image in zip(cls.files, cls.images):
            write_png(path, image)

    def test_nets_and_norms(self):
        for i, (model, flags) in enumerate((
            ("convnet", ()), ("convnet:5x3:8/2,max,16,avg,1x1:8,pool,12,3x3:6", ("--norm-scale",)),
            ("convnet:8", ("--ema-decay", 0)), ("convnet:flat", ()), ("convnet:pool", ("--norm", "batchnorm")),
            ("convnet:8/2,max,5x3:4,flat,24,3x3:6", ("--norm-scale",)),
            ("convnet:24/2,20/2,flat,48,6", ("--norm", "groupnorm", "--norm-eps", 0.1)),
            ("mlp", ("--norm", "native")), ("mlp:24,16", ("--norm-scale", "--norm-bias", -1.5)),
            ("mlp:48,16", ("--norm", "groupnorm", "--norm-scale")), ("inception-small", ("--norm", "groupnorm")),
            ("inception-small", ()), ("inception-small", ("--norm", "native")),
            ("resnet-small", ("--norm", "batchnorm", "--norm-scale")),
            ("resnet-small", ("--norm", "native", "--norm-scale", "--norm-eps", 0.1)),
        )):
            with self.subTest(model=model, flags=flags):
                run = self.train(f"run{i}", "--model", model, *flags)
                loaded = renorm.load_run(run)
                self.check(loaded, run, self.files, self.images)
                self.check_norms(loaded, flags)
                # Group normalization cannot be folded.
                for fold in ((),) if "groupnorm" in flags else ((), ("--fold",)):
                    file = self.folder / f"run{i}{''.join(fold)}.safetensors"
                    run_command("export", run, "--to", file, *fold)
                    exported = renorm.load_run(file)
                    self.assertEqual(exported.card.folded, bool(fold))
                    x = exported.card.standardize(self.images)
                    torch.testing.assert_close(exported(x), loaded(x), rtol=1e-5, atol=1e-5)

    def test_raw_weights(self):
        run = self.train("raw", "--model", "inception-small")
        model = renorm.load_run(run, averaged=False)
        self.assertEqual(model.card.weights, "raw")
        self.check(model, run, self.files, self.images, "--raw")
        x = model.card.standardize(self.images)
        self.assertGreater((model(x) - renorm.load_run(run)(x)).abs().max().item(), 1e-3)

    def check_norms(self, model, flags):
        scaled = "--norm-scale" in flags
        if "groupnorm" in flags:
            norms = [module for module in model.modules() if isinstance(module, torch.nn.GroupNorm)]
            self.assertGreater(len(norms), 0)
            self.assertTrue(all(norm.weight.requires_grad == scaled for norm in norms))
            self.assertTrue(all(norm.eps == (0.1 if "--norm-eps" in flags else 0.001) for norm in norms))
            return
        if "native" in flags:
            norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
            self.assertTrue(all(norm.weight.requires_grad == scaled for norm in norms))
            self.assertEqual(renorm.layers(model), [])
        else:
            norms = [layer for _, layer in renorm.layers(model)]
            self.assertTrue(all((norm.weight is not None) == scaled for norm in norms))
            constant = renorm.ClipSchedule.batch_norm() if "batchnorm" in flags else renorm.ClipSchedule.constant(3, 5)
            self.assertTrue(all(norm.clip == constant for norm in norms))
        self.assertTrue(all(norm.momentum == 0.3 and int(norm.num_batches_tracked) == 4 for norm in norms))

    def test_logits_of_the_exported_program(self):
        run = self.train("program", "--model", "inception-small")
        run_command("export", run, "--to", self.folder / "net.pt")
        program = torch.jit.load(str(self.folder / "net.pt"))
        model = renorm.load_run(run)
        x = model.card.standardize(self.images)
        with torch.no_grad():
            expected = program(x)
            torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-5)

    def test_checkpoints(self):
        run = self.train("steps", "--model", "convnet:8", "--checkpoint-every", 1, "--keep", 9)
        for name in ("step-1", "step-3", "best", "last"):
            model = renorm.load_run(run, checkpoint=name)
            self.check(model, run, self.files, self.images, "--checkpoint", name)
        self.assertEqual(model.card.step, 4)
        self.assertEqual(model.card.config["model"], "convnet:8")
        with self.assertRaisesRegex(FileNotFoundError, "has no checkpoint 'step-9'; its steps are 1, 2, 3, 4"):
            renorm.load_run(run, checkpoint="step-9")
        self.check_missing(run)
        self.check_damage(run)

    def check_missing(self, run):
        newest = run / "checkpoints" / "step-000000004"
        newest.rename(run / "elsewhere")
        with self.assertWarns(UserWarning) as caught:
            self.assertEqual(renorm.load_run(run).card.step, 3)
        self.assertIn("step-000000004' is missing; using step 3", str(caught.warning))
        (run / "elsewhere").rename(newest)

    def check_damage(self, run):
        newest = run / "checkpoints" / "step-000000004"
        weights = bytearray((newest / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (newest / "model.safetensors").write_bytes(weights)
        with self.assertRaisesRegex(ValueError, "model.safetensors: does not match its checksum"):
            renorm.load_run(run, checkpoint="step-4")
        (run / "checkpoints" / "step-000000003" / "average.safetensors").unlink()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = renorm.load_run(run)
        self.assertEqual(model.card.step, 2)
        self.assertEqual(len(caught), 2)
        message = "model.safetensors: does not match its checksum: altered or truncated; using step 2"
        self.assertIn(message, str(caught[0].message))
        self.assertEqual(caught[0].filename, __file__)
        self.check(model, run, self.files, self.images)
        for step in (1, 2):
            (run / "checkpoints" / f"step-00000000{step}" / "SHA256SUMS").write_text("x\n")
        with self.assertRaisesRegex(FileNotFoundError, "has no good checkpoint: .*not a checksum"):
            renorm.load_run(run)
        shutil.rmtree(run / "checkpoints")
        (run / "checkpoints").mkdir()
        with self.assertRaisesRegex(FileNotFoundError, "has no checkpoint"):
            renorm.load_run(run)

    def test_the_model_is_an_ordinary_module(self):
        for i, model in enumerate(("resnet-small", "convnet:8/2,flat,16", "mlp:24,16")):
            with self.subTest(model=model):
                self.check_module(renorm.load_run(self.train(f"module{i}", "--model", model)))

    def check_module(self, model):
        x = model.card.standardize(self.images)
        with torch.no_grad():
            expected = model(x)
            self.assertTrue(torch.equal(copy.deepcopy(model)(x), expected))
            again = pickle.loads(pickle.dumps(model))
            self.assertTrue(torch.equal(again(x), expected))
            self.assertEqual(again.card, model.card)
            torch.testing.assert_close(torch.jit.trace(model, x)(x), expected)
            torch.testing.assert_close(renorm.revert(copy.deepcopy(model))(x), expected, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(renorm.fold(copy.deepcopy(model))(x), expected, rtol=1e-4, atol=1e-6)
        model.train()
        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(5))
        loss.backward()
        self.assertTrue(all(parameter.grad is not None for parameter in model.parameters()))
        self.assertTrue(all(int(layer.num_batches_tracked) == 5 for _, layer in renorm.layers(model)))


@unittest.skipIf(torchvision is None, "no torchvision")
class LargeNets(CommandCase):
    """Evaluation shows 0.875 of a side: 56 of 64 pixels, or 84 of 96, without a change of scale."""

    def check_net(self, model, size, shown, *flags, fold=False):
        torch.manual_seed(1)
        data = self.folder / f"images{size}"
        for split, count in (("train", 4), ("val", 1)):
            for label in ("cat", "dog"):
                (data / split / label).mkdir(parents=True, exist_ok=True)
                for i in range(count):
                    write_png(data / split / label / f"{i}.png", noise(3, size, size))
        images = noise(2, 3, size, size)
        files = [self.folder / f"{size}-{i}.png" for i in range(2)]
        for path, image in zip(files, images):
            write_png(path, image)
        edge = (size - shown) // 2
        images = images[:, :, edge:edge + shown, edge:edge + shown]
        run = self.train(f"{model}{len(flags)}", "--model", model, "--image-size", shown, *flags, steps=1,
                         data=f"folder:{data}")
        loaded = renorm.load_run(run)
        self.assertEqual(loaded.card.classes, ("cat", "dog"))
        self.assertEqual((loaded.card.height, loaded.card.width, loaded.card.centre), (shown, shown, 0.875))
        self.check(loaded, run, files, images)
        if fold:
            file = self.folder / f"{run.name}.safetensors"
            run_command("export", run, "--to", file, "--fold")
            x = loaded.card.standardize(images)
            with torch.no_grad():
                torch.testing.assert_close(renorm.load_run(file)(x), loaded(x), rtol=1e-5, atol=1e-5)
        return loaded

    def test_resnet18(self):
        model = self.check_net("resnet18", 64, 56, fold=True)
        self.assertIsInstance(model, torchvision.models.ResNet)
        self.assertIsInstance(model.layer1[0].bn1, renorm.BatchRenorm2d)

    def test_resnet18_with_batchnorm_and_weights(self):
        model = self.check_net("resnet18", 64, 56, "--norm", "native", "--norm-scale")
        self.assertIs(type(model.layer1[0].bn1), torch.nn.BatchNorm2d)
        self.assertEqual(set(model.state_dict()), set(torchvision.models.resnet18().state_dict()))

    def test_resnet18_with_groupnorm(self):
        model = self.check_net("resnet18", 64, 56, "--norm", "groupnorm")
        self.assertEqual([model.bn1.num_groups, model.layer4[1].bn2.num_groups], [4, 32])

    def test_resnet50(self):
        self.check_net("resnet50", 64, 56, "--norm-scale")

    def test_inception_v3(self):
        model = self.check_net("inception-v3", 96, 84)
        self.assertIsInstance(model, torchvision.models.Inception3)

    def test_auxiliary_head_and_grey_images(self):
        """Without training: every tensor has a place."""
        for model, channels in (("inception-v3:aux", 3), ("resnet18", 1), ("inception-v3", 1)):
            with self.subTest(model=model, channels=channels):
                net, names = _nets.build(model, InputShape(channels, 96, 96, 7), 1 << 40)
                self.assertEqual(any("AuxLogits" in name for name in net.state_dict()), "aux" in model)
                side = 75 if "inception" in model else 32
                self.assertEqual(list(net.eval()(torch.zeros(1, channels, side, side)).shape), [1, 7])


if __name__ == "__main__":
    unittest.main()
