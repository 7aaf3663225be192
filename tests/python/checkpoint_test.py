"""torch.utils.checkpoint: averages move once and gradients are exact, with records or by deferred statistics.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 checkpoint_test.py
"""
import unittest
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import renorm
from renorm import BatchRenorm1d, BatchRenorm2d, ClipSchedule, _history, _tensors, modules
from support import Case, ramp, recognises_recomputation

needs_recognition = unittest.skipUnless(recognises_recomputation, "this PyTorch does not recognise a recomputation")


class WithoutFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64:
                raise TypeError(f"{function} has a float64 result")
        return result


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

    @needs_recognition
    def test_averages_move_once_and_gradients_are_exact(self):
        self.check(self.step)

    def test_deferred(self):
        def train(net, x, reentrant):
            with renorm.deferred(net):
                self.step(net, x, reentrant)

        self.check(train)

    @needs_recognition
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

    @needs_recognition
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

    @needs_recognition
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

    @needs_recognition
    def test_another_forward_inside_a_backward_pass(self):
        layer = BatchRenorm1d(2)
        x = torch.randn(8, 2, requires_grad=True)
        x.register_hook(lambda gradient: layer(gradient.detach()) * 0 + gradient)
        x.square().sum().backward()
        self.assertEqual(layer.num_batches_tracked.item(), 1)

    def test_devices_without_float64(self):
        """Simulated on the CPU: an operation with a float64 result is an error, as on MPS."""

        def train(net, x, reentrant):
            with WithoutFloat64():
                self.step(net, x, reentrant if recognises_recomputation else None)

        with mock.patch.object(modules, "has_kernels", False):
            with mock.patch.object(_tensors, "widest", lambda device: torch.float32):
                self.check(train)

    def test_steps_beyond_the_whole_numbers_of_float32(self):
        batch_mean, batch_std, mean, std = torch.randn(2, 3), torch.rand(2, 3), torch.randn(3), torch.rand(3)
        for wide in (torch.float32, torch.float64):
            with mock.patch.object(_tensors, "widest", lambda device: wide):
                history = _history.History()
                history.add(_history.record_of(mean, std, torch.tensor(2 ** 24 + 1), batch_mean, batch_std))
                found = history.averages_of(batch_mean, batch_std)
                self.assertIsNone(history.averages_of(batch_mean + 1, batch_std))
            self.same(found[0], mean)
            self.same(found[1], std)
            self.assertEqual(found[2].item(), 2 ** 24 + 1)

    def test_records_are_small(self):
        layer = BatchRenorm1d(64, group_size=2)
        for _ in range(40):
            layer(torch.randn(256, 64))
        if layer._history is not None:
            self.assertLessEqual(sum(record[0].numel() for record in layer._history._records), 16 * (4 * 64 + 1))

    @needs_recognition
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

    @needs_recognition
    def test_a_forward_too_long_ago_is_an_error(self):
        net = self.net()
        first = checkpoint(net, torch.randn(4, 3, 9, 9), use_reentrant=False).square().sum()
        for _ in range(40):
            net(torch.randn(4, 3, 9, 9))
        with self.assertRaisesRegex(RuntimeError, "renorm.deferred"):
            first.backward()


if __name__ == "__main__":
    unittest.main()
