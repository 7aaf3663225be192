"""Metric learning with related examples in each minibatch: recall@1 without norm, with BatchNorm and Batch Renorm.

A loss on distances needs several examples per class in its minibatch, so a minibatch is not a set of independent
samples. With batchnorm the embedding of an example then depends on its relatives: the network that training improves is
not the one that embeds single examples later, normalized by moving averages. Batch Renorm normalizes by the averages in
training too.

Data: made here, fresh at every step, so no network can memorize it. A class is 8 of 400 sensors. An example shows its
class and, a little weaker, a second class, with noise; each sensor has its own scale, between 0.1 and 10. A minibatch
has 8 random classes of 4 examples each. The loss is a contrastive one (Khosla et al., 2020) on a network of three
linear layers.

    python3 metric_learning.py [--quick] [--steps N] [--seed N] [--threads N]

recall@1 is the share of test examples whose nearest neighbour, by cosine, has the same class. "among all": fresh
examples of the training classes, and examples of classes that training has not seen, in evaluation mode. "inside of a
minibatch": the nearest of the 31 others, in training mode and in evaluation mode. The first row, "input", compares the
examples themselves.
"""
import argparse
import copy
import time

import torch
from torch import nn
from torch.nn import functional

import renorm

SENSORS, SENSORS_PER_CLASS, CLASSES, WIDTH, EMBEDDING = 400, 8, 50, 256, 64
CLASSES_PER_BATCH, EXAMPLES_PER_CLASS = 8, 4


class Data:
    """Random classes: `patterns` has 1 at the sensors of each class, `scale` is that of each sensor."""

    def __init__(self, scale):
        chosen = torch.rand(CLASSES, SENSORS).topk(SENSORS_PER_CLASS, dim=1).indices
        self.patterns = torch.zeros(CLASSES, SENSORS).scatter_(1, chosen, 1.0)
        self.scale = scale

    def draw(self, labels):
        """Fresh examples of the labels, each with a weaker second class."""
        def amplitude():
            return 0.85 + 0.3 * torch.rand(len(labels), 1)

        second = torch.randint(CLASSES, (len(labels),))
        signal = amplitude() * self.patterns[labels] + 0.85 * amplitude() * self.patterns[second]
        return self.scale * (signal + 0.12 * torch.randn_like(signal))


def draw_labels():
    """The labels of one minibatch: some random classes, several examples of each."""
    return torch.randint(CLASSES, (CLASSES_PER_BATCH,)).repeat_interleave(EXAMPLES_PER_CLASS)


def make_network():
    return nn.Sequential(
        nn.BatchNorm1d(SENSORS, momentum=0.01),
        nn.Linear(SENSORS, WIDTH), nn.BatchNorm1d(WIDTH, momentum=0.01), nn.ReLU(),
        nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH, momentum=0.01), nn.ReLU(),
        nn.Linear(WIDTH, EMBEDDING),
    )


def without_norm(network):
    """A copy without the norm layers."""
    layers = [copy.deepcopy(layer) for layer in network if not isinstance(layer, nn.BatchNorm1d)]
    return nn.Sequential(*layers)


def contrastive_loss(embeddings, labels, temperature=0.1):
    """Minus the log of an example's softmax similarity to those of its class, averaged over them and over examples."""
    unit = functional.normalize(embeddings)
    itself = torch.eye(len(labels), dtype=torch.bool)
    similarity = (unit @ unit.t() / temperature).masked_fill(itself, -1e9)
    related = (labels[:, None] == labels[None, :]) & ~itself
    return -(similarity.log_softmax(1) * related).sum(1).div(related.sum(1)).mean()


def train(network, data, steps):
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, betas=(0.9, 0.99))
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for _ in range(steps):
        labels = draw_labels()
        loss = contrastive_loss(network(data.draw(labels)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()


@torch.no_grad()
def embed(network, examples, training):
    """Unit embeddings, computed in minibatches of the size of training, by a copy: training mode moves the averages."""
    network = copy.deepcopy(network).train(training)
    parts = [network(part) for part in examples.split(CLASSES_PER_BATCH * EXAMPLES_PER_CLASS)]
    return functional.normalize(torch.cat(parts))


def recall_at_1(embeddings, labels):
    """In percent: embeddings [sets, examples, values], labels [sets, examples]; neighbours are in the same set."""
    similarity = embeddings @ embeddings.transpose(1, 2)
    similarity.diagonal(dim1=1, dim2=2).fill_(-2.0)
    return 100.0 * (labels.gather(1, similarity.argmax(2)) == labels).float().mean().item()


def measure(network, seen, unseen, batches):
    """recall@1 among all examples of training classes and of new ones, and inside of minibatches in both modes."""
    labels = torch.stack([draw_labels() for _ in range(batches)])
    of_seen, of_unseen = seen.draw(labels.flatten()), unseen.draw(labels.flatten())
    in_use = embed(network, of_seen, training=False)
    new = embed(network, of_unseen, training=False)
    as_trained = embed(network, of_seen, training=True)
    among_all = [recall_at_1(one[None], labels.reshape(1, -1)) for one in (in_use, new)]
    return among_all + [recall_at_1(one.reshape(*labels.shape, -1), labels) for one in (as_trained, in_use)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run that shows nothing, for tests")
    parser.add_argument("--steps", type=int, help="training steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = options.steps or (30 if options.quick else 4000)
    torch.manual_seed(options.seed)
    scale = 10.0 ** (2 * torch.rand(SENSORS) - 1)
    seen, unseen = Data(scale), Data(scale)
    start = make_network()
    clip = renorm.ClipSchedule.paper(steps)
    networks = {
        "input": nn.Identity(),
        "no norm": without_norm(start),
        "BatchNorm": copy.deepcopy(start),
        "Batch Renorm": renorm.convert(copy.deepcopy(start), clip=clip),
    }
    rows = []
    for name, network in networks.items():
        if name != "input":
            torch.manual_seed(options.seed + 1)
            begin = time.perf_counter()
            train(network, seen, steps)
            print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
        torch.manual_seed(options.seed + 2)
        rows.append((name, measure(network, seen, unseen, 4 if options.quick else 60)))
    print(f"\nrecall@1 in % after {steps} steps of {CLASSES_PER_BATCH} classes x {EXAMPLES_PER_CLASS} examples")
    print("             |     among all      |     inside of a minibatch")
    print("network      | trained       new  | as in training  as in use")
    for name, (trained, new, as_trained, in_use) in rows:
        print(f"{name:<12} | {trained:7.1f}  {new:8.1f}  | {as_trained:14.1f}  {in_use:9.1f}")


if __name__ == "__main__":
    main()
