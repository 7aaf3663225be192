"""usage: torchvision_reference.py FOLDER

Writes, for nets of torchvision with random weights and averages, what the C++ test compares with:
  NAME.safetensors            the state dict
  NAME-computed.safetensors   input, logits, auxiliary (where there is such a head), and the shape of every
                              norm's output as "shape of MODULE", 64-bit integers
"""
import json
import os
import struct
import sys

import torch
import torchvision

DTYPES = {torch.float32: "F32", torch.int64: "I64"}


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.detach().contiguous().numpy().tobytes())


def randomise(model):
    """Averages and weights far from where they start, in ranges that keep the activations moderate."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.6, 1.4)
            torch.nn.init.uniform_(module.bias, -0.3, 0.3)
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.1, 0.5)
        elif isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_uniform_(module.weight, nonlinearity="linear")
        elif isinstance(module, torch.nn.Linear):
            torch.nn.init.uniform_(module.bias, -1.0, 1.0)


def watch_shapes(model):
    shapes = {}

    def watch(name):
        def hook(module, inputs, output):
            shapes["shape of " + name] = torch.tensor(output.shape)
        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_hook(watch(name))
    return shapes


def compute(model, side):
    """In evaluation, and so that an auxiliary head takes part nevertheless."""
    model.eval()
    shapes = watch_shapes(model)
    computed = {"input": torch.randn(2, 3, side, side)}
    if getattr(model, "AuxLogits", None) is not None:
        def head(module, inputs, output):
            computed["auxiliary"] = model.AuxLogits(output)
        model.Mixed_6e.register_forward_hook(head)
    computed["logits"] = model(computed["input"])
    return {**computed, **shapes}


def main(folder):
    models = torchvision.models
    nets = [("resnet18", models.resnet18, {}, 224), ("resnet50", models.resnet50, {}, 224),
            ("inception-v3", models.inception_v3, {"init_weights": False, "aux_logits": True}, 299)]
    os.makedirs(folder, exist_ok=True)
    for name, make, arguments, side in nets:
        torch.manual_seed(2017)
        with torch.no_grad():
            model = make(weights=None, **arguments)
            randomise(model)
            # The counters differ from 0, so that a test can check that they are not loaded.
            for key, tensor in model.state_dict().items():
                if key.endswith("num_batches_tracked"):
                    tensor.fill_(1000)
            write_safetensors(f"{folder}/{name}-computed.safetensors", compute(model, side))
            write_safetensors(f"{folder}/{name}.safetensors", model.state_dict())


main(sys.argv[1])
