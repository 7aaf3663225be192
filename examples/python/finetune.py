"""Fine-tuning a torchvision ResNet with two images per step: BatchNorm against renorm.convert.

Large images or models often leave memory for few images per step. BatchNorm then trains with the statistics of two
images and is evaluated with averages over many, which is another network. renorm.convert replaces its layers and keeps
their weights and averages, so the pretrained network goes on as it was, and trains as it will be evaluated.

Data: made here, fresh at every step. A class is a random smooth colour pattern; an image has it at a random place,
contrast and brightness, with noise. The network, torchvision's ResNet with one block per stage, is trained from scratch
on ten classes in minibatches of 32 (there are no pretrained weights to download), and then fine-tuned on ten other
classes in minibatches of 2, each time from the same start:

    BatchNorm          as it is
    BatchNorm, frozen  in evaluation mode: the averages of pretraining normalize, a common way out
    Batch Renorm       after renorm.convert(model, clip=renorm.ClipSchedule.paper(steps))

All averages move with momentum 0.01 in fine-tuning: torchvision's 0.1 is an average over about 20 images here.

    python3 finetune.py [--quick] [--size N] [--steps N] [--seed N] [--threads N]

With --size 48 the last stage has 2 x 2 positions per image, so two images give batchnorm 8 values per channel. With
--size 32 it has one position per image: 2 values per channel.

"as in use" is the test accuracy in evaluation mode. "as in training" is the accuracy of the same network on the same
test images in the mode and the minibatches of its training.
"""
import argparse
import copy
import time

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torchvision.models.resnet import BasicBlock

import renorm

CLASSES = 10


def make_patterns(size):
    """[CLASSES, 3, size, size]"""
    coarse = torch.randn(CLASSES, 3, 6, 6)
    return functional.interpolate(coarse, (size, size), mode="bilinear", align_corners=False)


def draw(patterns, count):
    """Fresh images and their labels."""
    labels = torch.randint(CLASSES, (count,))
    furthest = patterns.shape[-1] // 4
    shifts = torch.randint(-furthest, furthest + 1, (count, 2)).tolist()
    images = torch.stack([torch.roll(patterns[label], shift, (1, 2)) for label, shift in zip(labels, shifts)])
    contrast, brightness = 0.5 + torch.rand(count, 1, 1, 1), 0.5 * torch.randn(count, 3, 1, 1)
    return contrast * images + brightness + 0.7 * torch.randn_like(images), labels


def train(model, patterns, steps, batch, rate, frozen=False):
    model.train(not frozen)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        images, labels = draw(patterns, batch)
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()


@torch.no_grad()
def accuracy(model, images, labels, batch, training=False):
    """In percent, in minibatches of the given size. Works on a copy, because training mode moves the averages."""
    model = copy.deepcopy(model).train(training)
    guesses = torch.cat([model(part).argmax(1) for part in images.split(batch)])
    return 100.0 * (guesses == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run that shows nothing, for tests")
    parser.add_argument("--steps", type=int, help="steps of fine-tuning")
    parser.add_argument("--size", type=int, default=48, help="pixels per side of an image, a multiple of 16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = options.steps or (4 if options.quick else 250)
    pretraining, tests = (2, 20) if options.quick else (70, 500)

    torch.manual_seed(options.seed)
    first, second = make_patterns(options.size), make_patterns(options.size)
    model = torchvision.models.ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES)
    begin = time.perf_counter()
    train(model, first, pretraining, batch=32, rate=1e-3)
    test = draw(first, tests)
    print(f"pretrained: {accuracy(model, *test, batch=50):.1f} % in {time.perf_counter() - begin:.1f} s", flush=True)
    model.fc.reset_parameters()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.01

    clip = renorm.ClipSchedule.paper(steps)
    models = {
        "BatchNorm": copy.deepcopy(model),
        "BatchNorm, frozen": copy.deepcopy(model),
        "Batch Renorm": renorm.convert(copy.deepcopy(model), clip=clip),
    }
    test = draw(second, tests)
    rows = []
    for name, tuned in models.items():
        torch.manual_seed(options.seed + 1)
        begin = time.perf_counter()
        train(tuned, second, steps, batch=2, rate=3e-4, frozen=name.endswith("frozen"))
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
        as_trained = accuracy(tuned, *test, batch=2, training=not name.endswith("frozen"))
        rows.append((name, as_trained, accuracy(tuned, *test, batch=50)))
    print(f"\ntest accuracy after {steps} steps of 2 images of {options.size} x {options.size} pixels, %")
    print("norm              | as in training  as in use")
    for name, as_trained, in_use in rows:
        print(f"{name:<17} | {as_trained:14.1f}  {in_use:9.1f}")


if __name__ == "__main__":
    main()
