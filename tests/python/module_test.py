"""What PyTorch does with modules: state, copies, dtypes, TorchScript, torch.func and checkpointing.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 module_test.py
"""
import copy
import io
import pickle
import unittest
import warnings

import torch
from torch.utils.checkpoint import checkpoint

import renorm
from renorm import BatchRenorm1d, BatchRenorm2d, ClipSchedule
from support import Case, has_func, ramp, reference, recognises_recomputation, trained


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
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), BatchRenorm2d(4, clip=ramp()))
        with torch.autocast("cpu", torch.bfloat16):
            y = model(torch.randn(4, 3, 8, 8))
        self.assertEqual(y.dtype, torch.bfloat16)
        y.float().sum().backward()
        self.assertEqual(model[1].weight.grad.dtype, torch.float)
        self.assertEqual(model[1].running_mean.dtype, torch.float)

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
    def parts(self, layer):
        state = {name: p.detach() for name, p in layer.named_parameters()}
        return state, {name: b.clone() for name, b in layer.named_buffers()}

    @unittest.skipUnless(has_func, "no torch.func")
    def test_functional_call_and_grad(self):
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 5)
        x = torch.randn(6, 3, 4, 5)
        for mode in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                layer.train(mode)
            parameters, buffers = self.parts(layer)

            def loss(parameters, buffers):
                return torch.func.functional_call(layer, (parameters, buffers), (x,)).square().sum()

            got = torch.func.grad(loss)(parameters, buffers)
            leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
            loss(leaves, self.parts(layer)[1]).backward()
            for name, leaf in leaves.items():
                self.close(got[name], leaf.grad, 1e-5)

    @unittest.skipUnless(has_func, "no torch.func")
    def test_jacrev_and_vmap_in_evaluation(self):
        layer = trained(BatchRenorm1d(3, clip=ramp()), 9, (6, 3)).eval()
        x = torch.randn(4, 3)
        jacobian = torch.func.jacrev(layer)(x)
        expected = torch.autograd.functional.jacobian(layer, x)
        self.close(jacobian, expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the slow path of vmap says so
            stacked = torch.func.vmap(layer)(torch.stack([x, x + 1]))
        self.close(stacked[1], layer(x + 1))

    @unittest.skipUnless(has_func, "no torch.func")
    def test_vmap_in_training(self):
        """An ensemble: parameters, averages and input of each member."""
        members = [trained(BatchRenorm1d(3, momentum=0.5, clip=ramp()), 4, (6, 3)) for _ in range(2)]
        parameters, buffers = torch.func.stack_module_state(members)
        base = copy.deepcopy(members[0])
        x = torch.randn(2, 6, 3)

        def call(parameters, buffers, x):
            return torch.func.functional_call(base, (parameters, buffers), (x,))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = torch.func.vmap(call)(parameters, buffers, x)
        for i, member in enumerate(members):
            self.close(got[i], member(x[i]), 1e-5)
            self.close(buffers["running_mean"][i], member.running_mean, 1e-5)

    @unittest.skipUnless(has_func, "no torch.func")
    def test_forward_mode_raises(self):
        layer = trained(BatchRenorm1d(3, clip=ramp()), 9, (6, 3))
        for mode in (True, False):
            layer.train(mode)
            with self.assertRaisesRegex((RuntimeError, NotImplementedError), "forward-mode differentiation"):
                torch.func.jvp(layer, (torch.randn(4, 3),), (torch.ones(4, 3),))

    def test_gradient_penalty(self):
        layer = trained(BatchRenorm2d(3, clip=ramp(), activation="relu"), 5)
        x = torch.randn(6, 3, 4, 5, requires_grad=True)
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        self.assertGreater(x.grad.abs().max().item(), 0)


class Checkpoint(Case):
    def net(self):
        torch.manual_seed(5)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), BatchRenorm2d(4, momentum=0.1, clip=ramp(), activation="relu"),
            torch.nn.Conv2d(4, 4, 3), BatchRenorm2d(4, momentum=0.1, clip=ramp(), activation="relu"))

    def step(self, net, x, reentrant):
        net.zero_grad()
        y = net(x) if reentrant is None else checkpoint(net, x, use_reentrant=reentrant)
        y.square().sum().backward()

    def check(self, train):
        for reentrant in (True, False):
            plain, again = self.net(), self.net()
            for _ in range(8):
                x = (torch.randn(4, 3, 9, 9) * 2 + 1).requires_grad_()
                self.step(plain, x, None)
                train(again, x, reentrant)
                for one, other in zip(plain.parameters(), again.parameters()):
                    self.close(one.grad, other.grad, 1e-5)
                for one, other in zip(plain.buffers(), again.buffers()):
                    if one.dtype.is_floating_point and one.dim() == 1:
                        self.close(one, other, 1e-6)
                self.assertEqual(again[1].num_batches_tracked.item(), plain[1].num_batches_tracked.item())

    @unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")
    def test_averages_move_once_and_gradients_are_exact(self):
        self.check(self.step)

    def test_deferred(self):
        def train(net, x, reentrant):
            with renorm.deferred(net):
                self.step(net, x, reentrant)

        self.check(train)

    @unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")
    def test_several_forwards_before_the_backward_passes(self):
        plain, again = self.net(), self.net()
        inputs = [torch.randn(4, 3, 9, 9) for _ in range(20)]
        for net, reentrant in ((plain, None), (again, False)):
            losses = []
            for x in inputs:
                y = net(x) if reentrant is None else checkpoint(net, x, use_reentrant=reentrant)
                losses.append(y.square().sum())
            losses[8].backward(retain_graph=True)
            losses[19].backward()
        for one, other in zip(plain.parameters(), again.parameters()):
            self.close(one.grad, other.grad, 1e-5)

    @unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")
    def test_inputs_that_are_alike(self):
        x = torch.randn(8, 2)
        wide = (x - x.mean(0)) * 3 + x.mean(0)  # the same means
        for inputs, in_order in (([x, x], False), ([x, wide], True)):
            plain, again = (BatchRenorm1d(2, momentum=0.5, clip=ClipSchedule.constant(1.5, 0.5)) for _ in range(2))
            gradients = []
            for layer, reentrant in ((plain, None), (again, False)):
                leaves = [one.clone().requires_grad_() for one in inputs]
                outputs = [layer(leaf) if reentrant is None else checkpoint(layer, leaf, use_reentrant=reentrant)
                           for leaf in leaves]
                if not in_order and reentrant is not None:  # the same forward twice, with other averages
                    with self.assertRaisesRegex(RuntimeError, "several with the same input"):
                        outputs[0].pow(3).sum().backward()
                    break
                for output in outputs:
                    output.pow(3).sum().backward()
                gradients.append([leaf.grad for leaf in leaves])
            if in_order:
                for one, other in zip(*gradients):
                    self.close(one, other, 1e-5)

    @unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")
    def test_a_commit_before_the_backward_pass(self):
        plain, again = self.net(), self.net()
        for net in (plain, again):
            renorm.set_statistics(net, "deferred")
        for _ in range(5):
            x = torch.randn(4, 3, 9, 9)
            for net, reentrant in ((plain, None), (again, False)):
                net.zero_grad()
                y = net(x) if reentrant is None else checkpoint(net, x, use_reentrant=reentrant)
                renorm.commit(net)
                y.square().sum().backward()
            for one, other in zip(plain.parameters(), again.parameters()):
                self.close(one.grad, other.grad, 1e-5)

    @unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")
    def test_another_forward_inside_a_backward_pass(self):
        layer = BatchRenorm1d(2)
        x = torch.randn(8, 2, requires_grad=True)
        x.register_hook(lambda gradient: layer(gradient.detach()) * 0 + gradient)
        x.square().sum().backward()
        self.assertEqual(layer.num_batches_tracked.item(), 1)

    def test_records_are_small(self):
        layer = BatchRenorm1d(64, group_size=2)
        for _ in range(40):
            layer(torch.randn(256, 64))
        if layer._history is not None:
            self.assertLessEqual(sum(record.numel() for record in layer._history._records), 16 * (4 * 64 + 1))

    @unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")
    def test_averages_that_somebody_changed(self):
        for name in ("running_mean", "running_std", "num_batches_tracked"):
            plain, again = self.net(), self.net()
            inputs = [torch.randn(4, 3, 9, 9) for _ in range(6)]
            for net, reentrant in ((plain, None), (again, False)):
                for x in inputs[:5]:
                    net(x)
                getattr(net[1], name).data.add_(2)
                net.zero_grad()
                self.step(net, inputs[5], reentrant)
            for one, other in zip(plain.parameters(), again.parameters()):
                self.close(one.grad, other.grad, 1e-5)

    @unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")
    def test_a_forward_too_long_ago_is_an_error(self):
        net = self.net()
        first = checkpoint(net, torch.randn(4, 3, 9, 9), use_reentrant=False).square().sum()
        for _ in range(40):
            net(torch.randn(4, 3, 9, 9))
        with self.assertRaisesRegex(RuntimeError, "renorm.deferred"):
            first.backward()


if __name__ == "__main__":
    unittest.main()
