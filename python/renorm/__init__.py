"""Batch Renormalization (Ioffe, 2017) for PyTorch.

>>> import renorm
>>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
>>> model = renorm.convert(model, clip=renorm.ClipSchedule.paper(20000))   # a run of 20,000 steps
>>> type(model[1]).__name__
'BatchRenorm2d'
"""
from ._library import has_kernels
from .clip import ClipSchedule
from .convert import FusedReLU, convert, convert_sync, revert
from .fold import fold
from .foreign import load_foreign
from .model import (
    ClipTelemetry,
    clear_clip_telemetry,
    clip_telemetry,
    commit,
    deferred,
    discard,
    layers,
    name_layers,
    set_clip,
    set_momentum,
    set_statistics,
    set_step,
    use_batch_statistics,
)
from .modules import BatchRenorm, BatchRenorm1d, BatchRenorm2d, BatchRenorm3d
from .runs import ModelCard, load_run
from .sync import SyncBatchRenorm

__version__ = "0.1.0"

__all__ = [
    "BatchRenorm",
    "BatchRenorm1d",
    "BatchRenorm2d",
    "BatchRenorm3d",
    "ClipSchedule",
    "ClipTelemetry",
    "FusedReLU",
    "ModelCard",
    "SyncBatchRenorm",
    "clear_clip_telemetry",
    "clip_telemetry",
    "commit",
    "convert",
    "convert_sync",
    "deferred",
    "discard",
    "fold",
    "has_kernels",
    "layers",
    "name_layers",
    "load_foreign",
    "load_run",
    "revert",
    "set_clip",
    "set_momentum",
    "set_statistics",
    "set_step",
    "use_batch_statistics",
]
