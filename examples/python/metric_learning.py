"""Metric learning with related images in each minibatch: recall@1 of BatchNorm and of Batch Renorm.

A loss on distances needs images of the same class in its minibatch, so minibatches are not independent samples. With
batchnorm an image then learns from its relatives through the minibatch statistics, and it has no relatives when the
moving averages normalize it in evaluation. Batch Renorm normalizes by the averages in training too.

Data: 20 x 20 pixels; a class is 8 random pixels; half of the images also show a weaker second class, and all have
noise. Images are fresh at every step, so no network can memorize them. A minibatch has 8 classes of 4 images each.

    python3 metric_learning.py [--quick] [--steps N] [--seed N] [--threads N]

recall@1 is the share of test images whose nearest neighbour by cosine has the same class: for fresh images of the
training classes and for images of classes that training has not seen. The column "batch statistics" evaluates in
minibatches made like those of training, which an application that embeds one image at a time does not have.
"""
import argparse
import copy
import time

import torch
from torch import nn
from torch.nn import functional

import renorm

PIXELS, DOTS, CLASSES, WIDTH, EMBEDDING = 400, 8, 50, 256, 64
CLASSES_PER_BATCH, IMAGES_PER_CLASS = 8, 4


def make_patterns(classes):
    """[classes, PIXELS], each row with DOTS random pixels at 1."""
    chosen = torch.rand(classes, PIXELS).topk(DOTS, dim=1).indices
    return torch.zeros(classes, PIXELS).scatter_(1, chosen, 1.0)


def draw_images(patterns, labels):
    """Fresh images of the labels. Every second one, by chance, also shows a weaker second class."""
    def amplitude():
        return 0.85 + 0.3 * torch.rand(len(labels), 1)

    second = torch.randint(len(patterns), (len(labels),))
    shown = (torch.rand(len(labels), 1) < 0.5).float()
    images = patterns[labels] * amplitude() + 0.85 * shown * amplitude() * patterns[second]
    return images + 0.12 * torch.randn_like(images)


def draw_labels(classes):
    """The labels of one minibatch: some random classes, several images of each."""
    return torch.randint(classes, (CLASSES_PER_BATCH,)).repeat_interleave(IMAGES_PER_CLASS)


def make_network():
    return nn.Sequential(
        nn.BatchNorm1d(PIXELS, momentum=0.01),
        nn.Linear(PIXELS, WIDTH, bias=False), nn.BatchNorm1d(WIDTH, momentum=0.01), nn.ReLU(),
        nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH, momentum=0.01), nn.ReLU(),
        nn.Linear(WIDTH, EMBEDDING),
    )


def without_norm(network):
    layers = [copy.deepcopy(layer) for layer in network if not isinstance(layer, nn.BatchNorm1d)]
    return nn.Sequential(*layers)


def contrastive_loss(embeddings, labels, temperature=0.1):
    """For each image: minus the log of its softmax similarity to the images of its class, averaged over them."""
    unit = functional.normalize(embeddings)
    itself = torch.eye(len(labels), dtype=torch.bool)
    similarity = (unit @ unit.t() / temperature).masked_fill(itself, -1e9)
    related = (labels[:, None] == labels[None, :]) & ~itself
    return -(similarity.log_softmax(1) * related).sum(1).div(related.sum(1)).mean()


def train(network, patterns, steps):
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, betas=(0.9, 0.99))
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for _ in range(steps):
        labels = draw_labels(len(patterns))
        loss = contrastive_loss(network(draw_images(patterns, labels)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()


@torch.no_grad()
def embed(network, images, training):
    """Unit embeddings, computed in minibatches of the size of training. Leaves the averages as they were."""
    state = {name: value.clone() for name, value in network.state_dict().items()}
    network.train(training)
    parts = [network(part) for part in images.split(CLASSES_PER_BATCH * IMAGES_PER_CLASS)]
    network.load_state_dict(state)
    return functional.normalize(torch.cat(parts))


def recall_at_1(embeddings, labels):
    """The share of images, in percent, whose nearest neighbour has their class: [batch, images, ...]."""
    similarity = embeddings @ embeddings.transpose(1, 2)
    similarity.diagonal(dim1=1, dim2=2).fill_(-2.0)
    return 100.0 * (labels.gather(1, similarity.argmax(2)) == labels).float().mean().item()


def measure(network, seen, unseen, batches):
    """recall@1 among all images of training classes and of new ones, and among the images of each minibatch."""
    labels = torch.stack([draw_labels(CLASSES) for _ in range(batches)])
    results = []
    for patterns in (seen, unseen):
        images = draw_images(patterns, labels.flatten())
        embeddings = embed(network, images, training=False)
        results.append(recall_at_1(embeddings[None], labels.reshape(1, -1)))
        if patterns is seen:
            as_trained = embed(network, images, training=True)
            inside = [recall_at_1(e.reshape(*labels.shape, -1), labels) for e in (as_trained, embeddings)]
    return results + inside


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run that shows nothing, for tests")
    parser.add_argument("--steps", type=int, help="training steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = options.steps or (30 if options.quick else 5000)
    torch.manual_seed(options.seed)
    seen, unseen = make_patterns(2 * CLASSES).chunk(2)
    start = make_network()
    networks = {"none": without_norm(start), "BatchNorm": start,
                "Batch Renorm": renorm.convert(copy.deepcopy(start), clip=renorm.ClipSchedule.paper(steps))}
    print(f"minibatches of {CLASSES_PER_BATCH} classes x {IMAGES_PER_CLASS} images, {steps} steps")
    rows = []
    for name, network in networks.items():
        torch.manual_seed(options.seed + 1)
        begin = time.perf_counter()
        train(network, seen, steps)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
        torch.manual_seed(options.seed + 2)
        rows.append((name, measure(network, seen, unseen, 4 if options.quick else 60)))
    print("\nrecall@1, %     |  among all images   | inside of a minibatch")
    print("norm            |  trained       new  | as in training  as in use")
    for name, (trained, new, as_trained, in_use) in rows:
        print(f"{name:<15} | {trained:8.1f}  {new:8.1f}  | {as_trained:14.1f}  {in_use:9.1f}")


if __name__ == "__main__":
    main()
