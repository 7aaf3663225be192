"""SyncBatchRenorm with Gloo on two processes: the same as one process with the whole batch.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 sync_test.py
"""
import copy
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
from renorm import SyncBatchRenorm
from support import Case, has_compile, ramp, recognises_recomputation

RANKS = 2
# Examples of each rank in each step.
SHARES = [(5, 3), (8, 0), (1, 1), (0, 6), (4, 4)]
# float32 results are rounded to 6e-8 of their size, a few times; sums of about 1000 float64 values to 1e-13.
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def layer(options, kind=SyncBatchRenorm):
    options = dict(options)
    dtype = options.pop("dtype", torch.float32)
    norm = kind(3, momentum=0.3, dtype=dtype, **options)
    with torch.no_grad():
        if norm.weight is not None:
            norm.weight.copy_(torch.tensor([0.5, 1.0, 1.5]))
        if norm.bias is not None:
            norm.bias.copy_(torch.tensor([0.2, -0.1, 0.0]))
    return norm


def shares(step, shape):
    return [count * (1 if len(shape) > 1 else 7) for count in SHARES[step]]


def draw(step, purpose, shape, dtype, offset=0.0):
    """A batch of all ranks. Vectors are more examples: two values of a channel that are close have large gradients."""
    generator = torch.Generator().manual_seed(100 * step + purpose)
    size = (sum(shares(step, shape)), *shape)
    return (torch.randn(size, dtype=torch.float64, generator=generator) * 2 + offset).to(dtype)


def part(batch, step, rank):
    """The share of a rank, or for None the whole batch in double, which has no rounding errors of its own."""
    return batch.double() if rank is None else batch.split(shares(step, batch.shape[1:]))[rank].clone()


def train(norm, rank, dtype, setup):
    """Outputs and gradients of all steps, the gradients of the parameters, and the state."""
    shape, offset = setup.get("shape", (3, 4, 5)), setup.get("offset", 0.5)
    outputs, gradients = [], []
    for step in range(len(SHARES)):
        x = part(draw(step, 0, shape, dtype, offset), step, rank)
        if setup.get("channels_last"):
            x = x.contiguous(memory_format=torch.channels_last)
        x.requires_grad_()
        inputs = [x]
        if setup.get("residual"):
            inputs.append(part(draw(step, 1, shape, dtype), step, rank).requires_grad_())
        y = norm(*inputs)
        y.backward(part(draw(step, 2, shape, dtype), step, rank))
        outputs.append(y.detach())
        gradients.append([tensor.grad for tensor in inputs])
        if step % 2 == 1:
            renorm.commit(norm)
    counts = norm.clip_counts if norm.clip_counts is not None else torch.zeros(4)
    return {
        "outputs": outputs,
        "gradients": gradients,
        "parameters": [parameter.grad for parameter in norm.parameters()],
        "state": [tensor.clone() for tensor in norm.state_dict().values()],
        "counts": counts,
    }


SETUPS = {
    "plain": {},
    "relu": {"options": {"activation": "relu"}},
    "channels-last": {"channels_last": True, "options": {"activation": "relu"}},
    "residual": {"residual": True, "options": {"activation": "relu"}},
    "deferred": {"options": {"statistics": "deferred"}},
    "vectors": {"shape": (3,)},
    "no parameters": {"options": {"affine": False}},
    "bias only": {"options": {"scale": False}},
    "cumulative": {"momentum": None},
    "no averages": {"options": {"track_running_stats": False}},
    "far": {"offset": 1e4, "options": {"clip": renorm.ClipSchedule.batch_norm()}, "tolerance": {torch.float64: 1e-10}},
}


def options_of(setup, dtype):
    return {"clip": ramp(), "dtype": dtype, **setup.get("options", {})}


def begin(rank, folder):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)


def finish():
    """Ends the process without destroying the process group, which may hang in PyTorch 1.13: its destructor waits for a
    thread that waits for the interpreter."""
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def run_setups(rank, folder):
    begin(rank, folder)
    results = {}
    for name, setup in SETUPS.items():
        for dtype in TOLERANCE:
            norm = layer(options_of(setup, dtype))
            norm.momentum = setup.get("momentum", 0.3)
            results[name, dtype] = train(norm, rank, dtype, setup)
    torch.save(results, f"{folder}/{rank}.pt")
    finish()


def message(function):
    try:
        function()
    except (RuntimeError, ValueError) as error:
        return str(error).split("\n")[0]
    return ""


def run_edges(rank, folder):
    begin(rank, folder)
    results = {}
    norm = SyncBatchRenorm(3, clip=ramp())
    bad = torch.ones(4, 3)
    bad[2, 1] = float("nan") if rank == 1 else 1.0
    before = copy.deepcopy(norm.state_dict())
    results["not finite"] = message(lambda: norm(bad))
    empty = torch.empty(0, 3, 2, 2, requires_grad=True)
    norm(empty).sum().backward()
    results["one value"] = message(lambda: norm(torch.ones(rank, 3)))
    results["unchanged"] = all(torch.equal(one, other) for one, other in zip(before.values(), norm.state_dict().values()))
    results["channels"] = message(lambda: norm(torch.ones(4, 2)))
    x = torch.randn(4, 3, requires_grad=True)
    output = norm(x).square().sum()
    results["create graph"] = message(lambda: torch.autograd.grad(output, x, create_graph=True))
    # A copy shares the process group and takes part.
    results["copy"] = copy.deepcopy(norm)(torch.full((1, 3), float(rank))).tolist()
    norm.eval()
    if rank == 0:  # evaluation needs no other rank
        norm(torch.randn(4, 3))
    norm.train()
    # A group of this rank alone is a plain layer.
    alone = [dist.new_group([i]) for i in range(RANKS)][rank]
    own, plain = SyncBatchRenorm(3, process_group=alone, clip=ramp()), renorm.BatchRenorm(3, clip=ramp())
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(rank))
    results["alone"] = torch.equal(own(x), plain(x)) and torch.equal(own.running_mean, plain.running_mean)
    if recognises_recomputation:
        results["checkpoint"] = run_checkpoint(rank)
    if has_compile:
        results["compile"] = run_compiled(rank)
    torch.save(results, f"{folder}/{rank}.pt")
    finish()


def run_compiled(rank):
    """Whether a compiled model has the results of an eager one."""
    results = []
    for compiled in (False, True):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(3, 4), SyncBatchRenorm(4, momentum=0.5, clip=ramp()), nn.ReLU())
        forward = torch.compile(model, backend="aot_eager") if compiled else model
        for step in range(3):
            x = torch.randn(2 + rank, 3, generator=torch.Generator().manual_seed(step))
            forward(x).square().sum().backward()
        results.append([*model.state_dict().values(), *(parameter.grad for parameter in model.parameters())])
    return all(torch.allclose(one, other, rtol=1e-6, atol=1e-6) for one, other in zip(*results))


def run_checkpoint(rank):
    """Whether a forward that is computed again has the same gradient and moves nothing."""
    from torch.utils.checkpoint import checkpoint

    gradients, states = [], []
    for again in (False, True):
        norm = SyncBatchRenorm(3, momentum=0.5, clip=renorm.ClipSchedule.constant(2.0, 1.0))
        x = torch.randn(2 + rank, 3, generator=torch.Generator().manual_seed(rank), requires_grad=True)
        y = checkpoint(norm, x, use_reentrant=False) if again else norm(x)
        y.square().sum().backward()
        gradients.append(x.grad)
        states.append(norm.running_mean)
    return torch.equal(*gradients) and torch.equal(*states)


def net(sync):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    model = renorm.convert(model, clip=ramp(), fuse_relu=True)
    return renorm.convert_sync(model) if sync else model


def ddp_batch(step):
    return torch.randn(RANKS * 6, 5, dtype=torch.double, generator=torch.Generator().manual_seed(step)) + 1


def ddp_steps(model, forward, rank, deferred):
    """The state after each of 5 steps. The loss is a mean over the batch."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    states = []
    for step in range(5):
        optimizer.zero_grad()
        x = ddp_batch(step)
        x = x if rank is None else x.chunk(RANKS)[rank]
        if deferred:
            with renorm.deferred(model):
                (forward(x) - 1).square().mean().backward()
        else:
            (forward(x) - 1).square().mean().backward()
        optimizer.step()
        states.append([tensor.clone() for tensor in model.state_dict().values()])
    return states


def run_ddp(rank, folder):
    begin(rank, folder)
    results = {}
    for broadcast in (True, False):
        for deferred in (False, True):
            model = net(sync=True)
            parallel = DistributedDataParallel(model, broadcast_buffers=broadcast)
            results[broadcast, deferred] = ddp_steps(model, parallel, rank, deferred)
    torch.save(results, f"{folder}/{rank}.pt")
    finish()


def run(worker):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (folder,), RANKS)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(RANKS)]


class Divided(Case):
    def test_is_one_process_with_the_whole_batch(self):
        ranks = run(run_setups)
        for name, setup in SETUPS.items():
            for dtype, usual in TOLERANCE.items():
                with self.subTest(setup=name, dtype=dtype):
                    tolerance = setup.get("tolerance", {}).get(dtype, usual)
                    norm = layer(options_of(setup, torch.float64), renorm.BatchRenorm)
                    norm.momentum = setup.get("momentum", 0.3)
                    self.compare([rank[name, dtype] for rank in ranks], train(norm, None, dtype, setup), tolerance)

    def near(self, one, other, tolerance):
        """Relative to 1 or the larger value: gradients of the output have that size, and sums of them may cancel."""
        error = (one.double() - other.double()).abs().max().item()
        self.assertLessEqual(error, tolerance * max(1.0, other.abs().max().item()))

    def compare(self, ranks, whole, tolerance):
        for step, output in enumerate(whole["outputs"]):
            self.near(torch.cat([rank["outputs"][step] for rank in ranks]), output, tolerance)
            for i, gradient in enumerate(whole["gradients"][step]):
                self.near(torch.cat([rank["gradients"][step][i] for rank in ranks]), gradient, tolerance)
        for i, gradient in enumerate(whole["parameters"]):
            self.near(sum(rank["parameters"][i] for rank in ranks), gradient, tolerance)
        for rank in ranks:
            self.same(rank["counts"], whole["counts"])
            for one, other, first in zip(rank["state"], whole["state"], ranks[0]["state"]):
                self.near(one, other, tolerance)
                self.same(one, first)

    def test_edges(self):
        for rank in run(run_edges):
            self.assertIn("the batch statistics of channel 1 are not finite", rank["not finite"])
            self.assertIn("more than one value per channel together, got one", rank["one value"])
            self.assertTrue(rank["unchanged"])
            self.assertIn("input must have 3 channels in dimension 1, got 2", rank["channels"])
            self.assertIn("create_graph is not supported with statistics over several processes", rank["create graph"])
            self.assertEqual(len(rank["copy"]), 1)
            self.assertTrue(rank["alone"])
            self.assertTrue(rank.get("checkpoint", True))
            self.assertTrue(rank.get("compile", True))

    def test_ddp_step_is_that_of_one_process(self):
        ranks = run(run_ddp)
        model = net(sync=False)
        expected = ddp_steps(model, model, None, deferred=False)
        for key, first in ranks[0].items():
            with self.subTest(broadcast_buffers=key[0], deferred=key[1]):
                for step, states in enumerate(expected):
                    for one, other, whole in zip(first[step], ranks[1][key][step], states):
                        self.same(one, other)
                        self.near(one, whole, 1e-12)


if __name__ == "__main__":
    if not (dist.is_available()):
        print("skipped: this PyTorch has no torch.distributed")
        sys.exit(0)
    os.environ.setdefault("USE_LIBUV", "0")
    unittest.main()
