"""Builds the wheel: python/renorm, the shared library that CMake builds, and library.json with its versions.

    pip install --no-build-isolation .

Environment variables: CMAKE_BUILD_PARALLEL_LEVEL, compile jobs (default: by cores and memory); RENORM_PREBUILT, a
built librenorm.so with library.json beside it to be packaged instead of building one.
"""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError, PlatformError

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        raise SystemExit(
            "error: renorm requires the Python package wheel; on Debian, install python3-wheel and create the venv with "
            "--system-site-packages"
        ) from None

ROOT = Path(__file__).resolve().parent
BUILD = Path("build", "pip")
LIBRARY, DESCRIPTION = "librenorm.so", "library.json"
KIB_PER_JOB = 1572864  # a file that includes LibTorch takes up to 1.5 GB


def version():
    header = (ROOT / "include/renorm/version.h").read_text()
    return re.search(r'define RENORM_VERSION "(.*)"', header).group(1)


def jobs():
    memory = re.search(r"^MemAvailable: *(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return max(1, min(len(os.sched_getaffinity(0)), int(memory.group(1)) // KIB_PER_JOB))


def find_torch():
    try:
        import torch
    except ImportError as error:
        raise PlatformError(
            f"renorm requires a Python with torch ({error}); on Debian, use a venv of /usr/bin/python3 with "
            "--system-site-packages, and pip install --no-build-isolation"
        ) from None
    return torch


def check_tools():
    if not shutil.which("cmake"):
        raise PlatformError(
            "renorm requires CMake 3.25 or newer, but there is no cmake; tools/setup installs it on Debian"
        )
    compilers = [os.environ["CXX"].split()[0]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    if not any(map(shutil.which, compilers)):
        raise PlatformError(
            f"renorm requires a C++ compiler, but there is no {' or '.join(compilers)}; tools/setup installs one on "
            "Debian"
        )


def run(*command):
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        raise ExecError(
            f"renorm: `{' '.join(command[:3])} ...` failed with code {error.returncode}; its output is above"
        ) from None


def check_torch(library, torch):
    """The library is for the torch that will load it: binary interfaces differ between minor versions."""
    built_for = json.loads(library.with_name(DESCRIPTION).read_text())["torch"]
    if built_for.split(".")[:2] != torch.__version__.split(".")[:2]:
        raise PlatformError(
            f"renorm: {library} is for LibTorch {built_for}, but the torch of this Python is {torch.__version__}; set "
            "CMAKE_PREFIX_PATH to the LibTorch of this Python, or use the Python of that LibTorch"
        )


def build_library(folder, torch):
    """Builds the library with CMake below `folder` and returns its path."""
    check_tools()
    # A cache of CMake holds one LibTorch.
    tree = folder / f"torch-{torch.__version__}"
    # The torch of the process provides the libraries, so the library has no search path of its own.
    settings = ["-DCMAKE_BUILD_TYPE=Release", "-DRENORM_CLI=OFF", "-DRENORM_TESTS=OFF", "-DCMAKE_SKIP_RPATH=ON"]
    if shutil.which("ninja"):
        settings.append("-GNinja")
    # Packages of Debian name a folder that does not exist; CMake finds their LibTorch without it. CMake searches the
    # environment variable CMAKE_PREFIX_PATH after this setting.
    if os.path.isdir(torch.utils.cmake_prefix_path):
        settings.append(f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}")
    run("cmake", "-S", str(ROOT), "-B", str(tree), *settings)
    parallel = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(jobs())
    run("cmake", "--build", str(tree), "--target", "renorm", "--parallel", parallel)
    return tree / "src" / LIBRARY


class BuildLibrary(build_ext):
    """Puts the library and its description into the package, in place of a Python extension."""

    def get_ext_filename(self, name):
        return str(Path("renorm", LIBRARY))

    def build_extension(self, extension):
        torch = find_torch()
        prebuilt = os.environ.get("RENORM_PREBUILT")
        library = Path(prebuilt).absolute() if prebuilt else build_library(Path(self.build_temp).absolute(), torch)
        for file in (library, library.with_name(DESCRIPTION)):
            if not file.is_file():
                raise PlatformError(f"renorm: there is no {file}")
        check_torch(library, torch)
        folder = Path(self.build_lib, "renorm")
        folder.mkdir(parents=True, exist_ok=True)
        # One file: a wheel has no symbolic links, and a copy of each name would be a library of its own.
        shutil.copyfile(library.resolve(), folder / LIBRARY)
        shutil.copyfile(library.with_name(DESCRIPTION), folder / DESCRIPTION)

    def copy_extensions_to_source(self):
        for name in (LIBRARY, DESCRIPTION):
            shutil.copyfile(Path(self.build_lib, "renorm", name), ROOT / "python/renorm" / name)


class BuildModules(build_py):
    def run(self):
        # A module that was removed from the sources stays there otherwise.
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "renorm"), ignore_errors=True)
        super().run()


class Wheel(bdist_wheel):
    """The library uses no interface of Python, so one wheel serves every Python 3."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


os.chdir(ROOT)
# No requirement of torch: the build already has the right one, and pip would check the requirements of torch too, of
# which Debian 13 has other versions.
BUILD.mkdir(parents=True, exist_ok=True)
setup(
    name="renorm",
    version=version(),
    description="Batch Renormalization for PyTorch",
    license="BSD-3-Clause",
    python_requires=">=3.9",
    packages=find_packages("python"),
    package_dir={"": "python"},
    package_data={"renorm": ["py.typed"]},
    ext_modules=[Extension("renorm.librenorm", [])],
    cmdclass={"build_ext": BuildLibrary, "build_py": BuildModules, "bdist_wheel": Wheel},
    options={"build": {"build_base": str(BUILD)}, "egg_info": {"egg_base": str(BUILD)}},
    zip_safe=False,
)
