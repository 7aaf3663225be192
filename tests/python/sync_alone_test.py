"""SyncBatchRenorm without a process group: the plain layer, convert_sync, copies, errors.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 sync_alone_test.py
"""
import copy
import io
import pickle
import unittest

import torch
from torch import nn

import renorm
from renorm import SyncBatchRenorm
from support import Case, ramp


class Alone(Case):
    def test_is_the_plain_layer(self):
        for activation in ("none", "relu"):
            one = SyncBatchRenorm(3, clip=ramp(), activation=activation)
            other = renorm.BatchRenorm2d(3, clip=ramp(), activation=activation)
            for mode in (True, True, False):
                x = torch.randn(4, 3, 5, 5)
                one.train(mode)
                other.train(mode)
                self.same(one(x), other(x))
                self.same(one(x, x), other(x, x))
            for name, value in one.state_dict().items():
                self.same(value, other.state_dict()[name])

    def test_convert_sync_keeps_everything(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), renorm.BatchRenorm2d(4, clip=ramp(), activation="relu", momentum=0.2))
        model(torch.randn(2, 3, 8, 8))
        old = model[1]
        old.mark, seen = "mine", []
        old.register_forward_hook(lambda *_: seen.append(1))
        old.eval()
        self.assertIs(renorm.convert_sync(model), model)
        new = model[1]
        self.assertIs(type(new), SyncBatchRenorm)
        self.assertIs(new.weight, old.weight)
        self.assertIs(new.running_mean, old.running_mean)
        self.assertEqual((new.mark, new.activation, new.momentum, new.clip), ("mine", "relu", 0.2, ramp()))
        self.assertEqual((new.training, int(new.num_batches_tracked), new.process_group), (False, 1, None))
        x = torch.randn(2, 4, 3, 3)
        self.same(new(x), old(x))
        self.assertEqual(len(seen), 2)

    def test_revert_gives_the_class_of_before(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
        renorm.revert(renorm.convert_sync(renorm.convert(model)))
        self.assertIs(type(model[1]), nn.BatchNorm2d)
        self.assertNotIn(b"renorm", pickle.dumps(model))  # nothing of it is needed to load the model

    def test_convert_sync_of_shared_layers_and_of_a_layer(self):
        norm = renorm.BatchRenorm1d(3)
        model = nn.Sequential(norm, norm)
        renorm.convert_sync(model)
        self.assertIs(model[0], model[1])
        self.assertIs(type(renorm.convert_sync(norm)), SyncBatchRenorm)

    def test_errors(self):
        model = nn.Sequential(renorm.BatchRenorm1d(3), renorm.BatchRenorm1d(3, group_size=2))
        with self.assertRaisesRegex(ValueError, "renorm.convert_sync: group_size of '1' must be 0, got 2"):
            renorm.convert_sync(model)
        self.assertIs(type(model[0]), renorm.BatchRenorm1d)
        with self.assertRaisesRegex(ValueError, "SyncBatchRenorm: group_size must be 0, got 4"):
            SyncBatchRenorm(3, group_size=4)
        norm = SyncBatchRenorm(3)
        with self.assertRaisesRegex(ValueError, "group_size must be 0, got 4"):
            norm.group_size = 4
        self.assertEqual(norm.group_size, 0)
        with self.assertRaisesRegex(ValueError, "no Batch Renorm layer"):
            renorm.convert_sync(nn.Linear(2, 2))
        with self.assertRaisesRegex(ValueError, r"SyncBatchRenorm: input must be \[N, C, ...\], got 1 dimension"):
            norm(torch.randn(3))

    def test_copies(self):
        norm = SyncBatchRenorm(3, clip=ramp(), process_group=object())
        norm(torch.randn(4, 3))
        self.assertIs(copy.deepcopy(norm).process_group, norm.process_group)
        other = pickle.loads(pickle.dumps(norm))
        self.assertIsNone(other.process_group)
        whole = io.BytesIO()
        torch.save(norm.state_dict(), whole)
        whole.seek(0)
        fresh = SyncBatchRenorm(3, clip=ramp())
        fresh.load_state_dict(torch.load(whole))
        norm.eval()
        x = torch.randn(4, 3)
        for copied in (copy.deepcopy(norm), other.eval(), fresh.eval()):
            self.same(copied(x), norm(x))
        plain = renorm.BatchRenorm1d(3)
        plain.load_state_dict(norm.state_dict())

    def test_revert_fold_and_script(self):
        model = nn.Sequential(nn.Linear(4, 3), SyncBatchRenorm(3, clip=ramp())).eval()
        with torch.no_grad():
            model[1].running_mean.fill_(0.5)
            model[1].running_std.fill_(2.0)
        x = torch.randn(5, 4)
        expected = model(x)
        self.close(torch.jit.script(copy.deepcopy(model))(x), expected)
        self.close(renorm.fold(copy.deepcopy(model))(x), expected)
        reverted = renorm.revert(copy.deepcopy(model))
        self.assertIsInstance(reverted[1], nn.modules.batchnorm._BatchNorm)
        self.close(reverted(x), expected)
        scripted = torch.jit.script(SyncBatchRenorm(3))
        with self.assertRaisesRegex(Exception, "TorchScript can only evaluate it"):
            scripted(torch.randn(4, 3))


if __name__ == "__main__":
    unittest.main()
