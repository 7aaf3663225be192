"""DistributedDataParallel with Gloo on two processes: the averages are equal on all ranks after every step.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 ddp_test.py
"""
import os
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import renorm
from renorm import BatchRenorm1d
from support import Case, ramp

RANKS = 2
STEPS = 6


def net():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 4), BatchRenorm1d(4, momentum=0.2, clip=ramp(), activation="relu"), nn.Linear(4, 3),
                         BatchRenorm1d(3, momentum=0.2, clip=ramp())).double()


def batch(step):
    return torch.randn(RANKS * 8, 5, dtype=torch.double, generator=torch.Generator().manual_seed(step)) + 1


def state(model):
    return [tensor.clone() for tensor in list(model.parameters()) + list(model.buffers())]


def train(rank, model, broadcast, mode):
    """The model after each step, as this rank has it."""
    parallel = DistributedDataParallel(model, broadcast_buffers=broadcast)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    states = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x = batch(step)[rank * 8:][:8]
        if mode == "immediate":
            (parallel(x) - 1).square().mean().backward()
        else:  # two forwards per step
            with renorm.deferred(model):
                for part in (x[:4], x[4:]):
                    ((parallel(part) - 1).square().mean() / 2).backward()
        optimizer.step()
        states.append(state(model))
    return states


def finish():
    """Ends the process without destroying the process group, which may hang in PyTorch 1.13: its destructor waits for a
    thread that waits for the interpreter."""
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def work(rank, folder, broadcast, mode):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    torch.save(train(rank, net(), broadcast, mode), f"{folder}/{rank}.pt")
    finish()


def collect(rank, folder, broadcast, mode):
    """Two forwards per step, momentum 1: the averages are the mean over all that the ranks have seen. With "empty" rank 1
    has no example in the second."""
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    model = nn.Sequential(BatchRenorm1d(5, momentum=1.0, clip=ramp())).double()
    parallel = DistributedDataParallel(model, broadcast_buffers=broadcast)
    with renorm.deferred(model):
        for part in range(2):
            rows = batch(part)[rank * 8:][:8]
            parallel(rows[:0] if mode == "empty" and part == rank == 1 else rows)
    torch.save(model[0].running_mean, f"{folder}/{rank}.pt")
    with renorm.deferred(model):  # without DistributedDataParallel no other rank takes part
        if rank == 0:
            model(batch(2))
    # A process group instead of DistributedDataParallel: the mean over its ranks, with all digits of each layer.
    alone = nn.ModuleList([BatchRenorm1d(5, momentum=1.0, clip=ramp(), dtype=dtype) for dtype in (torch.float, torch.double)])
    with renorm.deferred(alone, process_group=dist.group.WORLD):
        for layer in alone:
            layer(batch(3)[rank * 8:][:8].to(layer.running_mean.dtype))
        if rank == 0:
            alone[1](batch(4)[:8])
    torch.save([layer.running_mean for layer in alone], f"{folder}/group{rank}.pt")
    finish()


class Parallel(Case):
    def run_ranks(self, broadcast, mode):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, (folder, broadcast, mode), RANKS)
            return [torch.load(f"{folder}/{rank}.pt") for rank in range(RANKS)]

    def test_averages_are_equal_on_all_ranks_after_every_step(self):
        for broadcast in (True, False):
            for mode in ("immediate", "deferred"):
                with self.subTest(broadcast_buffers=broadcast, mode=mode):
                    first, second = self.run_ranks(broadcast, mode)
                    for one, other in zip(first, second):
                        averages = [(a, b) for a, b in zip(one, other) if a.dtype == torch.double and a.dim() == 1]
                        self.assertEqual(len(averages), 10)  # 4 of linear layers and norms each, and 2 x 2 averages
                        for a, b in averages:
                            self.same(a, b)

    def test_deferred_averages_are_the_mean_over_all_ranks(self):
        for broadcast in (True, False):
            for mode in ("full", "empty"):
                with self.subTest(broadcast_buffers=broadcast, mode=mode), tempfile.TemporaryDirectory() as folder:
                    mp.spawn(collect, (folder, broadcast, mode), RANKS)
                    seen = [batch(0)[:8], batch(0)[8:], batch(1)[:8]] + ([batch(1)[8:]] if mode == "full" else [])
                    expected = torch.stack([rows.mean(0) for rows in seen]).mean(0)
                    for rank in range(RANKS):
                        self.close(torch.load(f"{folder}/{rank}.pt"), expected, 1e-10)
                    parts = [rows.mean(0) for rows in (batch(3)[:8], batch(3)[8:], batch(4)[:8])]
                    single, double = sum(parts[:2]) / 2, sum(parts) / 3
                    for rank in range(RANKS):
                        got = torch.load(f"{folder}/group{rank}.pt")
                        self.close(got[0], single.float(), 1e-6)
                        self.close(got[1], double, 1e-10)

    def test_they_are_those_of_one_process_with_a_group_per_rank(self):
        first, _ = self.run_ranks(False, "immediate")
        model = net()
        for _, layer in renorm.layers(model):
            layer.group_size = 8
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            (model(batch(step)) - 1).square().mean().backward()
            optimizer.step()
            for one, other in zip(state(model), first[step]):
                if one.dtype == torch.double and one.dim() == 1:
                    self.close(one, other, 1e-10)


if __name__ == "__main__":
    if not (dist.is_available()):
        print("skipped: this PyTorch has no torch.distributed")
        sys.exit(0)
    os.environ.setdefault("USE_LIBUV", "0")
    unittest.main()
