"""What is refused: options, input, averages, models and schedules, each with one sentence and the right class.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 errors_test.py
"""
import unittest

import torch

import renorm
from renorm import BatchRenorm1d, BatchRenorm2d, ClipSchedule
from support import Case, ramp


class Errors(Case):
    def test_construction(self):
        for arguments, options, kind, text in [
            ((0,), {}, ValueError, "num_features must be an integer > 0, got 0"),
            ((3.5,), {}, ValueError, "num_features must be an integer > 0, got 3.5"),
            ((3, 1e-5, "x"), {}, TypeError, "momentum must be a number, got 'x'"),
            ((3, 0.0), {}, ValueError, "eps must be > 0"),
            ((3, 1e-5, 1.5), {}, ValueError, r"momentum must be in \[0, 1\] or None, got 1.5"),
            ((3,), {"group_size": float("inf")}, ValueError, "group_size must be an integer >= 0, got inf"),
            ((3,), {"group_size": -1}, ValueError, "group_size must be an integer >= 0, got -1"),
            ((3,), {"grouping": "random"}, ValueError, "grouping must be 'contiguous' or 'strided', got 'random'"),
            ((3,), {"activation": "gelu"}, ValueError, "activation must be 'none' or 'relu', got 'gelu'"),
            ((3,), {"statistics": "never"}, ValueError, "statistics must be 'immediate' or 'deferred'"),
            ((3,), {"clip": 20000}, TypeError, "clip must be a ClipSchedule"),
            ((3,), {"dtype": torch.int64}, TypeError, "dtype must be a floating torch.dtype"),
            ((3,), {"banana": 1}, TypeError, "banana"),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                BatchRenorm2d(*arguments, **options)

    def test_options_that_are_changed_later(self):
        layer = BatchRenorm2d(3)
        for option, value in (("statistics", "defered"), ("grouping", "stridded"), ("activation", "gelu"), ("momentum", 2.0),
                              ("eps", 0.0), ("group_size", -1), ("clip", (0, 0.5, 1, 1, 1))):
            before = getattr(layer, option)
            with self.subTest(option=option), self.assertRaisesRegex((ValueError, TypeError), f"BatchRenorm2d: {option} must"):
                setattr(layer, option, value)
            self.assertEqual(getattr(layer, option), before)

    def test_errors_name_the_layer(self):
        model = torch.nn.Sequential(torch.nn.Sequential(BatchRenorm2d(3)))
        renorm.name_layers(model)
        with self.assertRaisesRegex(RuntimeError, "renorm.BatchRenorm2d '0.0': input must have 3 channels in dimension 1, got 4"):
            model(torch.randn(4, 4, 5, 5))
        with self.assertRaisesRegex(RuntimeError, "renorm.BatchRenorm2d '0.0': the batch statistics of channel 0 are not"):
            model(torch.full((4, 3, 5, 5), float("inf")))
        layer = model[0][0]
        with self.assertRaisesRegex(ValueError, "renorm.BatchRenorm2d '0.0': residual must"):
            layer(torch.randn(4, 3, 5, 5), torch.randn(4, 3, 5, 4))
        layer.group_size = 3
        for x, kind, text in [
            (torch.randn(4, 3), ValueError, "input must be"),
            (torch.ones(4, 3, 5, 5, dtype=torch.int64), TypeError, "input must have a floating dtype"),
            (torch.randn(4, 3, 5, 5), ValueError, "group_size must divide"),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(kind, "renorm.BatchRenorm2d '0.0': " + text):
                model(x)
        layer.group_size = 0
        with self.assertRaisesRegex(ValueError, "renorm.BatchRenorm2d '0.0': input must have more than one value"):
            model(torch.randn(1, 3, 1, 1))

    def test_input(self):
        layer = BatchRenorm2d(3, group_size=4)
        for x, kind, text in [
            (torch.randn(4, 3), ValueError, r"input must be \[N, C, H, W\], got 2 dimension"),
            (torch.ones(4, 3, 5, 5, dtype=torch.int64), TypeError, "floating dtype, got torch.int64"),
            (torch.randn(4, 2, 5, 5), RuntimeError, "3"),
            (torch.randn(6, 3, 5, 5), ValueError, "group_size must divide the batch, got group_size 4 and a batch of 6"),
            (torch.randn(4, 3, 5, 5).double(), RuntimeError, "(?i)float"),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                layer(x)
        with self.assertRaisesRegex(ValueError, "more than one value per channel"):
            BatchRenorm1d(3)(torch.randn(1, 3))
        with self.assertRaisesRegex(ValueError, "residual must have the shape"):
            BatchRenorm2d(3)(torch.randn(4, 3, 5, 5), torch.randn(4, 3, 5, 4))
        self.assertEqual(layer.num_batches_tracked.item(), 0)

    def calls(self):
        """(description, class of the error, call) for every way through a layer."""
        for options in ({}, {"track_running_stats": False}, {"track_running_stats": False, "affine": False}):
            for training in (True, False):
                layer = BatchRenorm2d(3, clip=ramp(), **options)
                scripted = torch.jit.script(layer)
                for one in (layer, scripted):
                    one.train(training)
                yield dict(options, training=training), RuntimeError, layer
                yield dict(options, training=training, scripted=True), torch.jit.Error, scripted
        layer = BatchRenorm2d(3, clip=ramp()).eval()

        def by_batch(x):
            with renorm.use_batch_statistics(layer):
                return layer(x)

        yield {"use_batch_statistics": True}, RuntimeError, by_batch

    def test_channels_and_dtype_in_every_mode(self):
        """Tensor operations would broadcast and promote."""
        for mode, kind, call in self.calls():
            for channels in (1, 4):
                for batch in (4, 0):
                    text = f"BatchRenorm2d: input must have 3 channels in dimension 1, got {channels}"
                    with self.subTest(channels=channels, batch=batch, **mode), self.assertRaisesRegex(kind, text):
                        call(torch.randn(batch, channels, 5, 5))
            if mode.get("affine", True):
                with self.subTest(**mode), self.assertRaisesRegex(kind, "a float32 layer does not take float64 input"):
                    call(torch.randn(4, 3, 5, 5).double())
            self.assertEqual(call(torch.randn(4, 3, 5, 5)).shape, (4, 3, 5, 5))
        with self.assertRaisesRegex(RuntimeError, "a float64 layer takes float64 input only"):
            BatchRenorm2d(3, dtype=torch.double)(torch.randn(4, 3, 5, 5))

    def test_eps_that_rounds_to_zero(self):
        """A channel that is constant would become NaN."""
        for eps, dtype, refused in ((1e-50, torch.float32, True), (7e-46, torch.float32, True), (1e-44, torch.float32, False),
                                    (1e-50, torch.bfloat16, True), (1e-50, torch.float64, False)):
            held = torch.float64 if dtype == torch.float64 else torch.float32
            for training in (True, False):
                layer = BatchRenorm2d(3, eps, clip=ramp(), dtype=held).train(training)
                for call in (layer, torch.jit.script(layer)):
                    with self.subTest(eps=eps, dtype=dtype, training=training, call=type(call).__name__):
                        x = torch.zeros(4, 3, 2, 2, dtype=dtype)
                        if refused:
                            with self.assertRaisesRegex(Exception, "BatchRenorm2d: eps must be > 0 as a float32, got "):
                                call(x)
                        else:
                            self.assertTrue(call(x).isfinite().all())

    def test_bad_averages(self):
        for value in (0.0, -1.0, float("nan")):
            layer = BatchRenorm2d(3, clip=ramp())
            layer.running_std[1] = value
            for mode in (True, False):
                layer.train(mode)
                with self.assertRaisesRegex(RuntimeError, "running_std must be finite and > 0.*channel 1"):
                    layer(torch.randn(4, 3, 5, 5))

        layer = BatchRenorm2d(3, clip=ramp())
        layer.running_mean[2] = float("inf")
        for mode in (True, False):
            layer.train(mode)
            with self.assertRaisesRegex(RuntimeError, "running_mean must be finite, got inf in channel 2"):
                layer(torch.randn(4, 3, 5, 5))

    def test_numbers_of_other_libraries(self):
        """Integers of NumPy are whole numbers, as for BatchNorm."""
        numpy = __import__("numpy")
        layer = BatchRenorm2d(numpy.int64(3), clip=ClipSchedule.paper(numpy.int32(1000)))
        renorm.set_step(layer, numpy.int64(7))
        self.assertEqual(layer(torch.randn(4, 3, 5, 5)).shape, (4, 3, 5, 5))
        self.assertEqual(layer.num_batches_tracked, 8)
        self.assertIs(type(layer.num_features), int)

    def test_numbers_of_other_libraries_that_are_not_whole(self):
        numpy = __import__("numpy")
        layer = BatchRenorm2d(3)
        values = (torch.tensor(2.5), torch.tensor([1, 2]), torch.tensor(True), numpy.array([1, 2]), numpy.float64(2.5),
                  numpy.bool_(True), True)
        for value in values:
            with self.subTest(value=value), self.assertRaisesRegex(ValueError, "step must be an integer >= 0, got"):
                renorm.set_step(layer, value)

    def test_numbers_that_no_tensor_holds(self):
        for make in (lambda: ClipSchedule.paper(10**30), lambda: ClipSchedule.ramp(0, 3, 2**63, 5, 9),
                     lambda: renorm.set_step(BatchRenorm2d(3), 2**63)):
            with self.assertRaisesRegex(ValueError, r"below 2\*\*63"):
                make()

    def test_models_that_have_no_batchnorm_left(self):
        converted = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), BatchRenorm2d(3))
        with self.assertRaisesRegex(ValueError, "no BatchNorm layer; it has Batch Renorm layers already"):
            renorm.convert(converted)
        scripted = torch.jit.script(torch.nn.Sequential(torch.nn.BatchNorm2d(3)))
        with self.assertRaisesRegex(TypeError, "a ScriptModule cannot be changed; convert the model before torch.jit.script"):
            renorm.convert(scripted)

    def test_models_without_layers(self):
        model = torch.nn.Linear(2, 2)
        for call in (renorm.commit, renorm.discard, lambda m: renorm.set_step(m, 1),
                     lambda m: renorm.set_clip(m, ClipSchedule.paper())):
            with self.assertRaisesRegex(ValueError, "no Batch Renorm layer"):
                call(model)
        with self.assertRaises(TypeError):
            renorm.set_clip(BatchRenorm2d(3), (1, 2))
        with self.assertRaises(ValueError):
            renorm.set_step(BatchRenorm2d(3), 1.9)

    def test_what_is_not_a_model(self):
        def enter(context):
            def call(model):
                with context(model):
                    pass

            return call

        plain = ("layers", "name_layers", "commit", "discard", "clip_telemetry", "clear_clip_telemetry", "convert",
                 "convert_sync", "revert", "fold")
        calls = {name: getattr(renorm, name) for name in plain}
        calls.update({name: enter(getattr(renorm, name)) for name in ("deferred", "use_batch_statistics")})
        calls["set_clip"] = lambda model: renorm.set_clip(model, ClipSchedule.paper())
        calls["set_step"] = lambda model: renorm.set_step(model, 1)
        calls["set_momentum"] = lambda model: renorm.set_momentum(model, 0.1)
        calls["set_statistics"] = lambda model: renorm.set_statistics(model, "deferred")
        calls["load_foreign"] = lambda model: renorm.load_foreign(model, {})
        for name, call in calls.items():
            for model in (None, [BatchRenorm2d(3)]):
                text = f"^renorm.{name}: model must be a torch.nn.Module, got "
                with self.subTest(function=name, model=model), self.assertRaisesRegex(TypeError, text):
                    call(model)

    def test_arguments_of_the_wrong_type(self):
        arrays = {"ra_mean": [0, 0], "ra_var": [1, 1], "scale": [1, 1], "bias": [0, 0]}
        layer = BatchRenorm1d(2)
        for call, text in [
            (lambda: renorm.convert(torch.nn.BatchNorm2d(3), include=5), "renorm.convert: include must be a pattern"),
            (lambda: renorm.convert(torch.nn.BatchNorm2d(3), exclude=None), "renorm.convert: exclude must be a pattern"),
            (lambda: renorm.revert(BatchRenorm2d(3), include=["*", 5]), "renorm.revert: include must be a pattern"),
            (lambda: renorm.load_foreign(layer, arrays, eps="x"), "renorm.load_foreign: eps must be a number, got 'x'"),
            (lambda: renorm.load_foreign(layer, arrays, momentum="x"), "load_foreign: momentum must be a number, got 'x'"),
            (lambda: renorm.load_foreign(layer, arrays, names=5), "load_foreign: names must be a mapping, got 5"),
            (lambda: ClipSchedule.ramp("a", 3, 4, 5, 6), "ClipSchedule: hold must be a number, got 'a'"),
            (lambda: ClipSchedule.constant("a", 3), "ClipSchedule: r_max must be a number, got 'a'"),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(TypeError, text):
                call()

    def test_steps_that_are_not_whole(self):
        for make in (lambda hold, r_step, d_step: ClipSchedule.ramp(hold, 3, r_step, 5, d_step),
                     lambda hold, r_step, d_step: BatchRenorm2d(3, clip=ClipSchedule(hold, 3.0, r_step, 5.0, d_step))):
            for name in ("hold", "r_step", "d_step"):
                for value in (1.9, float("inf"), float("nan")):
                    text = f"ClipSchedule: {name} must be a whole number, got {value}"
                    with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                        make(**dict({"hold": 0, "r_step": 9, "d_step": 9}, **{name: value}))
        self.assertEqual(repr(ClipSchedule.ramp(2.0, 3, 9.0, 5, 7)), repr(ramp()))

    def test_schedules(self):
        for make in (lambda: ClipSchedule.paper(0), lambda: ClipSchedule.ramp(-1, 3, 4, 5, 6),
                     lambda: ClipSchedule.ramp(9, 3, 4, 5, 6), lambda: ClipSchedule.constant(0.5, 0),
                     lambda: ClipSchedule.constant(2, -1), lambda: ClipSchedule.constant(float("nan"), 0)):
            with self.assertRaises(ValueError):
                make()
        self.assertEqual(ClipSchedule.paper(), (5000, 3.0, 40000, 5.0, 25000))
        self.assertEqual(ClipSchedule.batch_norm().at(7), (1.0, 0.0))
        self.assertEqual(ClipSchedule.ramp(2, float("inf"), 9, 5, 9).at(3)[0], float("inf"))


if __name__ == "__main__":
    unittest.main()
