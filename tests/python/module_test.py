"""What PyTorch does with modules: state, copies, dtypes, TorchScript and torch.func.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 module_test.py
"""
import copy
import inspect
import io
import pickle
import unittest
import warnings

import torch

import renorm
from renorm import BatchRenorm1d, BatchRenorm2d, ClipSchedule
from support import Case, func, has_func, ramp, reference, trained

if has_func:
    functional_call = torch.func.functional_call
else:

    def functional_call(module, state, arguments):
        """Takes several dicts, as that of torch.func does."""
        merged = {name: tensor for part in state for name, tensor in part.items()} if isinstance(state, tuple) else state
        return torch.nn.utils.stateless.functional_call(module, merged, arguments)


def convolves_in(dtype):
    """Whether a convolution under autocast to the dtype has it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autocast("cpu", dtype):
                return torch.nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2)).dtype == dtype
    except RuntimeError:  # autocast refuses the dtype
        return False


class State(Case):
    def test_state_dict(self):
        layer = trained(BatchRenorm2d(3))
        self.assertEqual(list(layer.state_dict()),
                         ["weight", "bias", "running_mean", "running_std", "num_batches_tracked"])
        other = BatchRenorm2d(3)
        other.load_state_dict(layer.state_dict())
        self.assertEqual(other.num_batches_tracked.item(), 3)
        self.same(other.running_std, layer.running_std)

    def test_copies(self):
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 5)
        x = torch.randn(6, 3, 4, 5)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        options = {} if torch.__version__.startswith("1.") else {"weights_only": False}
        renorm.set_statistics(layer, "deferred")
        layer(x)  # collected statistics are not copied
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, **options)]
        for one in (layer, *copies):
            self.assertEqual(one.collected_groups.item(), 1 if one is layer else 0)
            renorm.set_statistics(one, "immediate")
        expected = layer(x)
        for one in copies:
            self.same(one(x), expected)
            self.same(one.running_mean, layer.running_mean)
            self.assertEqual(one.num_batches_tracked.item(), 6)

    def test_parameters_and_averages_stay_float(self):
        layer = trained(BatchRenorm2d(3, dtype=torch.double), 0)
        for change in (lambda l: l.half(), lambda l: l.bfloat16(), lambda l: l.to(torch.bfloat16)):
            for start in (torch.float, torch.double):
                changed = change(BatchRenorm2d(3, dtype=start))
                for name in ("weight", "bias", "running_mean", "running_std"):
                    self.assertEqual(getattr(changed, name).dtype, torch.float)
                self.assertEqual(changed.num_batches_tracked.dtype, torch.int64)
        self.assertEqual(layer.running_std.dtype, torch.double)
        self.assertEqual(BatchRenorm2d(3).double().bias.dtype, torch.double)
        self.assertEqual(BatchRenorm2d(3, dtype=torch.half).bias.dtype, torch.float)

    def test_narrow_input(self):
        for dtype in (torch.bfloat16, torch.half):
            layer = BatchRenorm2d(3, clip=ramp()).to(dtype)
            x = torch.randn(6, 3, 4, 5).to(dtype)
            expected, _, _ = reference(x, layer)
            y = layer(x)
            self.assertEqual(y.dtype, dtype)
            self.close(y, expected, 2 ** -8)  # the rounding of a bfloat16 output
            self.assertEqual(layer.eval()(x).dtype, dtype)

    def test_autocast(self):
        for dtype in (torch.bfloat16, torch.half):
            for activation in ("none", "relu"):
                with self.subTest(dtype=dtype, activation=activation):
                    if not convolves_in(dtype):
                        self.skipTest(f"no convolution in {dtype} under autocast")
                    self.check_autocast(dtype, activation)

    def check_autocast(self, dtype, activation):
        conv, layer = torch.nn.Conv2d(3, 4, 3), trained(BatchRenorm2d(4, clip=ramp(), activation=activation), 5, (6, 4, 5, 5))
        x = torch.randn(4, 3, 8, 8)
        autocast = torch.autocast("cpu", dtype)
        with autocast:
            between = conv(x).detach()
            expected, means, _ = reference(between, layer)
            mean = layer.running_mean.double() + layer.momentum * (means[0] - layer.running_mean.double())
            y = layer(conv(x))
        self.assertEqual(y.dtype, dtype)
        self.close(y, expected, torch.finfo(dtype).eps)  # the rounding of the output
        self.close(layer.running_mean, mean, 1e-5)
        y.float().sum().backward()
        self.close(layer.bias.grad, (expected > 0).sum((0, 2, 3)) if activation == "relu" else torch.full((4,), 4.0 * 36))
        self.assertEqual((layer.weight.grad.dtype, conv.weight.grad.dtype), (torch.float, torch.float))
        layer.eval()
        with autocast:
            y = layer(between)
        shape = (1, 4, 1, 1)
        expected = (between.double() - layer.running_mean.reshape(shape)) / layer.running_std.reshape(shape)
        self.assertEqual(y.dtype, dtype)
        self.close(y, expected.relu() if activation == "relu" else expected, torch.finfo(dtype).eps)

    def test_parameters_in_other_places(self):
        expected = BatchRenorm2d(3, clip=ramp())
        for change in (lambda l: torch.nn.utils.weight_norm(l, "weight", dim=0),
                       lambda l: torch.nn.utils.parametrize.register_parametrization(l, "bias", torch.nn.Identity()) and l):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # weight_norm is deprecated
                layer = change(BatchRenorm2d(3, clip=ramp()))
            x = torch.randn(6, 3, 4, 5)
            self.close(layer(x), expected(x))
            expected.reset_running_stats()

    @unittest.skipUnless(hasattr(torch, "inference_mode"), "no torch.inference_mode")
    def test_inference_mode(self):
        with torch.inference_mode():
            layer = trained(BatchRenorm2d(3, clip=ramp()), 5)
            self.assertEqual(layer.num_batches_tracked.item(), 5)
        layer = BatchRenorm2d(3)
        with torch.inference_mode():
            trained(layer, 2)
        layer(torch.randn(4, 3, 5, 5)).sum().backward()
        self.assertEqual(layer.num_batches_tracked.item(), 3)

    def test_default_dtype(self):
        try:
            torch.set_default_dtype(torch.double)
            self.assertEqual(BatchRenorm2d(3).running_std.dtype, torch.double)
        finally:
            torch.set_default_dtype(torch.float)

    def test_meta_device(self):
        layer = BatchRenorm2d(3, device="meta", activation="relu")
        for mode in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                layer.train(mode)
            self.assertEqual(layer(torch.empty(4, 3, 5, 5, device="meta")).shape, (4, 3, 5, 5))

    def test_loading_into_a_layer_of_the_meta_device(self):
        trained = BatchRenorm2d(3, clip=ramp())
        x = torch.randn(4, 3, 5, 5)
        for _ in range(4):
            trained(x)
        ways = {"to_empty": lambda layer, state: layer.to_empty(device="cpu").load_state_dict(state)}
        if "assign" in inspect.signature(torch.nn.Module.load_state_dict).parameters:
            ways["assign"] = lambda layer, state: layer.load_state_dict(state, assign=True)
        for name, load in ways.items():
            with self.subTest(name):
                layer, twin = BatchRenorm2d(3, clip=ramp(), device="meta"), copy.deepcopy(trained)
                load(layer, trained.state_dict())
                self.same(layer.clip_counts, torch.zeros(4, dtype=torch.int64))
                self.same(layer(x), twin(x))
                self.same(layer.running_std, twin.running_std)
                for one in (layer, twin):
                    with renorm.deferred(one):
                        one(x + 1)
                self.same(layer.running_mean, twin.running_mean)
                self.assertEqual(renorm.clip_telemetry(layer)[""].values, 6)

    def test_other_devices_are_not_waited_for(self):
        """Meta tensors have no values: reading one is an error."""
        for statistics in ("immediate", "deferred"):
            layer = BatchRenorm2d(3, clip=ramp(), device="meta", group_size=2, statistics=statistics)
            averages = layer.running_mean, layer.running_std, layer.num_batches_tracked
            x = torch.randn(4, 3, 5, 5, device="meta", requires_grad=True)
            output, *statistics_and_limits = layer._train(x, None, *averages)
            layer._end_eagerly(*averages, *statistics_and_limits)
            output.sum().backward()
            self.assertEqual(x.grad.shape, x.shape)
            layer.eval()(x)

    def test_tensors_without_data(self):
        try:
            from torch._subclasses.fake_tensor import FakeTensorMode
        except ImportError:
            self.skipTest("no FakeTensorMode")
        with FakeTensorMode():
            layer = BatchRenorm2d(3)
            self.assertEqual(layer(torch.empty(4, 3, 5, 5)).shape, (4, 3, 5, 5))
            self.assertEqual(layer.eval()(torch.empty(4, 3, 5, 5)).shape, (4, 3, 5, 5))

    def test_reset(self):
        layer = trained(BatchRenorm2d(3))
        layer.reset_running_stats()
        self.same(layer.running_std, torch.ones(3))
        self.assertEqual(layer.num_batches_tracked.item(), 0)

    def test_set_clip_and_step(self):
        model = torch.nn.Sequential(BatchRenorm2d(3), BatchRenorm2d(3))
        renorm.set_clip(model, ClipSchedule.paper(1300))
        renorm.set_step(model, 17)
        renorm.set_momentum(model, 0.5)
        for _, layer in renorm.layers(model):
            self.assertEqual(layer.clip.hold, 50)
            self.assertEqual(layer.num_batches_tracked.item(), 17)
            self.assertEqual(layer.momentum, 0.5)


class Script(Case):
    def check(self, scripted, layer):
        for mode in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scripted.train(mode)
                layer.train(mode)
            for _ in range(4 if mode else 1):
                x = torch.randn(6, 3, 4, 5) + 1
                self.close(scripted(x), layer(x), 1e-6)
        self.close(scripted.running_mean, layer.running_mean)
        self.assertEqual(scripted.num_batches_tracked.item(), layer.num_batches_tracked.item())

    def test_script(self):
        for options in ({}, {"group_size": 2, "activation": "relu"}, {"momentum": None}, {"statistics": "deferred"}):
            layer = BatchRenorm2d(3, clip=ramp(), **options)
            scripted = torch.jit.script(copy.deepcopy(layer))
            file = io.BytesIO()
            torch.jit.save(scripted, file)
            file.seek(0)
            self.check(torch.jit.load(file), layer)

    def test_script_gradient(self):
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 5)
        scripted = torch.jit.script(copy.deepcopy(layer))
        x = torch.randn(6, 3, 4, 5)
        gradients = []
        for one in (layer, scripted):
            one(x).square().sum().backward()
            gradients.append(one.weight.grad)
        self.close(*gradients, 1e-5)

    def test_trace_and_freeze(self):
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 9).eval()
        x = torch.randn(6, 3, 4, 5)
        with warnings.catch_warnings():
            warnings.simplefilter("error", torch.jit.TracerWarning)
            traced = torch.jit.trace(layer, x)
        self.close(traced(x[:2]), layer(x[:2]))
        frozen = torch.jit.freeze(torch.jit.script(layer))
        self.close(frozen(x), layer(x))


class Functions(Case):
    def layer_in_both_modes(self):
        """One layer with an input, first in training, then in evaluation."""
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 5)
        x = torch.randn(6, 3, 4, 5)
        for mode in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                layer.train(mode)
            yield layer, x

    def parts(self, layer):
        state = {name: p.detach() for name, p in layer.named_parameters()}
        return state, {name: b.clone() for name, b in layer.named_buffers()}

    def test_functional_call(self):
        for layer, x in self.layer_in_both_modes():
            other = copy.deepcopy(layer)
            state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
            state["weight"], state["running_mean"] = state["weight"] + 1, state["running_mean"] + 0.5
            other.load_state_dict(state)
            before = copy.deepcopy(layer.state_dict())
            state["weight"].requires_grad_()
            got, expected = functional_call(layer, state, x), other(x)
            self.close(got, expected)
            got.square().sum().backward()
            expected.square().sum().backward()
            self.close(state["weight"].grad, other.weight.grad, 1e-5)
            for name, tensor in layer.state_dict().items():
                self.same(tensor, before[name])
                self.close(state[name], other.state_dict()[name])

    @unittest.skipUnless(func, "neither torch.func nor functorch")
    def test_grad_of_a_functional_call(self):
        for layer, x in self.layer_in_both_modes():
            parameters, buffers = self.parts(layer)

            def loss(parameters, buffers):
                return functional_call(layer, (parameters, buffers), (x,)).square().sum()

            got = func.grad(loss)(parameters, buffers)
            leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
            loss(leaves, self.parts(layer)[1]).backward()
            for name, leaf in leaves.items():
                self.close(got[name], leaf.grad, 1e-5)

    @unittest.skipUnless(func, "neither torch.func nor functorch")
    def test_jacrev_and_vmap_in_evaluation(self):
        layer = trained(BatchRenorm1d(3, clip=ramp()), 9, (6, 3)).eval()
        x = torch.randn(4, 3)
        jacobian = func.jacrev(layer)(x)
        expected = torch.autograd.functional.jacobian(layer, x)
        self.close(jacobian, expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the slow path of vmap says so
            stacked = func.vmap(layer)(torch.stack([x, x + 1]))
        self.close(stacked[1], layer(x + 1))

    @unittest.skipUnless(has_func, "no torch.func")
    def test_vmap_in_training(self):
        """An ensemble: parameters, averages and input of each member."""
        members = [trained(BatchRenorm1d(3, momentum=0.5, clip=ramp()), 4, (6, 3)) for _ in range(2)]
        parameters, buffers = torch.func.stack_module_state(members)
        base = copy.deepcopy(members[0])
        x = torch.randn(2, 6, 3)

        def call(parameters, buffers, x):
            return functional_call(base, (parameters, buffers), (x,))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = torch.func.vmap(call)(parameters, buffers, x)
        for i, member in enumerate(members):
            self.close(got[i], member(x[i]), 1e-5)
            self.close(buffers["running_mean"][i], member.running_mean, 1e-5)

    def refuse_forward_mode(self):
        return self.assertRaisesRegex(RuntimeError, "forward-mode differentiation is not supported")

    def test_forward_mode_raises(self):
        for mode in (True, False):
            for trained_parameters in (True, False):
                layer = trained(BatchRenorm1d(3, clip=ramp()), 9, (6, 3)).train(mode)
                layer.requires_grad_(trained_parameters)
                for recorded in (True, False):
                    with self.subTest(training=mode, requires_grad=trained_parameters, recorded=recorded):
                        self.check_forward_mode(layer, recorded)

    def check_forward_mode(self, layer, recorded):
        with torch.autograd.forward_ad.dual_level(), torch.set_grad_enabled(recorded):
            dual = torch.autograd.forward_ad.make_dual(torch.randn(4, 3), torch.ones(4, 3))
            for arguments in ((dual,), (torch.randn(4, 3), dual)):
                with self.refuse_forward_mode():
                    layer(*arguments)
            layer(torch.randn(4, 3))
        if func:
            with self.refuse_forward_mode():
                func.jvp(layer, (torch.randn(4, 3),), (torch.ones(4, 3),))

    def test_gradient_penalty(self):
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 5)
        x = torch.randn(6, 3, 4, 5, requires_grad=True)
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        self.assertGreater(x.grad.abs().max().item(), 0)


if __name__ == "__main__":
    unittest.main()
