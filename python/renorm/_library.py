"""Finds and loads the compiled operators, torch.ops.renorm.*."""
import json
import os
import warnings
from pathlib import Path
from typing import Dict, Optional

import torch

_PACKAGE = Path(__file__).resolve().parent
_REBUILD = "build it again with this PyTorch: pip install --no-build-isolation --force-reinstall <folder of renorm>"


def _described(folder: Path) -> Dict[str, str]:
    """library.json: the versions that the library in `folder` was built with, or {} without that file."""
    file = folder / "library.json"
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ImportError(f"renorm: {file} cannot be read: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ImportError(f"renorm: {file} must be a JSON object of strings; {_REBUILD}")
    return found


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def find() -> Optional[Path]:
    """The library that the variable RENORM_LIBRARY names ("none": no library), else the one of the package."""
    chosen = os.environ.get("RENORM_LIBRARY", "")
    if chosen == "none":
        return None
    if chosen:
        return Path(chosen)
    library = _PACKAGE / _described(_PACKAGE).get("library", "librenorm.so")
    return library if library.exists() else None


def load(library: Optional[Path]) -> bool:
    """Loads the operators and returns whether there are any."""
    if library is None:
        if os.environ.get("RENORM_LIBRARY") != "none":
            warnings.warn(
                "renorm has no compiled library here and computes with tensor operations, which takes many times as "
                "long; `pip install --no-build-isolation <folder of renorm>` builds the library",
                stacklevel=3,
            )
        return False
    built_for = (_described(library.parent) or _described(_PACKAGE)).get("torch")
    if built_for is not None and _minor(built_for) != _minor(torch.__version__):
        raise ImportError(
            f"renorm: {library} was built for PyTorch {built_for}, but this is PyTorch {torch.__version__}; {_REBUILD}"
        )
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise ImportError(f"renorm: {library} cannot be loaded ({error}); {_REBUILD}") from None
    return True


has_kernels = load(find())
