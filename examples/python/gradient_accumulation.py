"""Gradient accumulation with renorm.deferred, and what goes wrong without it.

A training step of 32 images is computed as 8 forwards of 4 images. A layer that moves its averages in every forward
moves them 8 times per step: they average over an eighth of the time, the clip schedule ends after an eighth of the run,
and r and d of a forward depend on the forwards before it in the same step. Inside of renorm.deferred(model) forwards
only collect their statistics, and the averages move once, at the end of the step.

What accumulation should compute is known here: Batch Renorm with group_size=4 on all 32 images at once. The script
trains the same network in three ways from the same start, with the same images in the same order:

    whole batch   one forward of 32 images, group_size=4
    deferred      8 forwards of 4 images inside of renorm.deferred(model)
    immediate     8 forwards of 4 images without it

    python3 gradient_accumulation.py [--quick] [--steps N] [--seed N] [--threads N]

Columns: the step that the clip schedule has reached; the relative difference of weights and of averages from those of
the whole batch; by how much the gradient of one step changes when the 8 parts come in reverse order; test accuracy.
"""
import argparse
import contextlib
import copy
import time

import torch
from torch import nn
from torch.nn import functional

import renorm

BATCH, PART, SIZE, CLASSES = 32, 4, 12, 10


def draw(patterns, count):
    """Fresh images of random classes: the class's pattern at a random brightness and contrast, with noise."""
    labels = torch.randint(CLASSES, (count,))
    contrast, brightness = 0.5 + torch.rand(count, 1, 1, 1), torch.randn(count, 1, 1, 1)
    images = contrast * patterns[labels] + brightness
    return images + 4.0 * torch.randn_like(images), labels


def make_model(clip, group_size=0):
    def block(inputs, outputs):
        norm = renorm.BatchRenorm2d(outputs, group_size=group_size, activation="relu", clip=clip)
        return nn.Conv2d(inputs, outputs, 3, padding=1, stride=2, bias=False), norm

    return nn.Sequential(*block(3, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 9, CLASSES))


def accumulate(model, images, labels, context):
    """The gradient of one training step, from several forwards."""
    with context:
        for image, label in zip(images.split(PART), labels.split(PART)):
            # Each part has a share of the mean over the whole batch.
            (functional.cross_entropy(model(image), label) * len(label) / len(labels)).backward()


def gradient(model, way, images, labels):
    """Adds the gradient of one training step to .grad."""
    if way == "whole batch":
        functional.cross_entropy(model(images), labels).backward()
    elif way == "deferred":
        accumulate(model, images, labels, renorm.deferred(model))
    else:
        accumulate(model, images, labels, contextlib.nullcontext())


def train(model, way, patterns, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    model.train()
    for _ in range(steps):
        images, labels = draw(patterns, BATCH)
        optimizer.zero_grad()
        gradient(model, way, images, labels)
        optimizer.step()


def order_dependence(model, way, images, labels):
    """The relative difference of the gradients with the parts in order and in reverse."""
    order = torch.arange(BATCH)
    gradients = []
    for index in (order, order.reshape(-1, PART).flip(0).flatten()):
        one = copy.deepcopy(model).train()
        one.zero_grad()
        gradient(one, way, images[index], labels[index])
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in one.parameters()]))
    return difference(*gradients)


def difference(value, reference):
    return ((value - reference).norm() / reference.norm()).item()


def state(model, averages):
    """All averages of the model, or all its weights, in one tensor."""
    entries = [(name, value) for name, value in model.state_dict().items() if value.is_floating_point()]
    return torch.cat([value.flatten() for name, value in entries if ("running" in name) == averages])


@torch.no_grad()
def accuracy(model, images, labels):
    return 100.0 * (model.eval()(images).argmax(1) == labels).float().mean().item()


def measure(model, reference, way, images, labels):
    """The columns of the table."""
    reached = renorm.layers(model)[0][1].num_batches_tracked.item()
    weights, averages = [difference(state(model, one), state(reference, one)) for one in (False, True)]
    order = order_dependence(model, way, images[:BATCH], labels[:BATCH])
    return way, reached, weights, averages, order, accuracy(model, images, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run that shows nothing, for tests")
    parser.add_argument("--steps", type=int, help="training steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_default_dtype(torch.float64)  # differences by rounding stay small over the whole run
    steps = options.steps or (20 if options.quick else 400)
    torch.manual_seed(options.seed)
    patterns = torch.randn(CLASSES, 3, SIZE, SIZE)
    clip = renorm.ClipSchedule.paper(steps)
    start = make_model(clip)
    rows, models = [], {}
    for way in ("whole batch", "deferred", "immediate"):
        model = models[way] = make_model(clip, PART if way == "whole batch" else 0)
        model.load_state_dict(start.state_dict())
        torch.manual_seed(options.seed + 1)
        begin = time.perf_counter()
        train(model, way, patterns, steps)
        print(f"{way}: {time.perf_counter() - begin:.1f} s", flush=True)
        rows.append(measure(model, models["whole batch"], way, *draw(patterns, 2000)))
    report(rows, steps)


def report(rows, steps):
    print(f"\nafter {steps} steps of {BATCH // PART} x {PART} images")
    print("way         | schedule at step | weights differ  averages differ | order changes gradient | accuracy, %")
    for way, reached, weights, averages, order, correct in rows:
        print(f"{way:<11} | {reached:16d} | {weights:14.1e}  {averages:15.1e} | {order:22.1e} | {correct:11.1f}")


if __name__ == "__main__":
    main()
