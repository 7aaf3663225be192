"""pip builds a wheel from the sources and a built library, and the wheel works in a virtual environment offline.

usage: python3 wheel_test.py LIBRARY SOURCE SCRATCH
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

library, source, scratch = map(pathlib.Path, sys.argv[1:])
environment = {name: value for name, value in os.environ.items() if not name.startswith(("RENORM_", "PIP_", "PYTHON"))}
environment.update(RENORM_PREBUILT=str(library), PIP_CONFIG_FILE=os.devnull, PIP_DISABLE_PIP_VERSION_CHECK="1")


def run(*command):
    result = subprocess.run(command, cwd=scratch, env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    print(result.stdout, end="")
    return result.returncode == 0


def copy_sources(target):
    """pip builds inside the source folder; tests leave that alone."""
    for name in ("setup.py", "pyproject.toml", "LICENSE", "include/renorm/version.h"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, target / name)
    shutil.copytree(source / "python", target / "python",
                    ignore=shutil.ignore_patterns("__pycache__", "librenorm.so", "library.json"))


def check_wheel(path):
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    version = json.loads(library.with_name("library.json").read_text())["renorm"]
    assert path.name == f"renorm-{version}-py3-none-{platform}.whl", path
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if name.startswith("renorm/")}
        modules = {str(file.relative_to(source / "python")) for file in (source / "python/renorm").rglob("*.py")}
        added = {"renorm/py.typed", "renorm/library.json", "renorm/librenorm.so"}
        assert names == modules | added, f"{sorted(names)} in the wheel, sources: {sorted(modules)}"
        assert wheel.read("renorm/librenorm.so") == library.read_bytes()


shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
copy_sources(scratch / "source")
# A wheel has what the sources have, not what an earlier build had.
stale = scratch / "source/python/renorm/removed.py"
python = scratch / "venv/bin/python"
has_tools = "import setuptools\ntry: import setuptools.command.bdist_wheel\nexcept ImportError: import wheel"
if not run(sys.executable, "-m", "venv", "--system-site-packages", "venv") or not run(python, "-c", has_tools):
    print("skipped: no venv, pip, setuptools or wheel for this Python")
    sys.exit()

build = (python, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir",
         "--wheel-dir", "wheels", "./source")
stale.touch()
assert run(*build)
stale.unlink()
assert run(*build)
(wheel,) = scratch.glob("wheels/*.whl")
check_wheel(wheel)
assert run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", wheel)
(installed,) = scratch.glob("venv/lib/python*/site-packages/renorm/librenorm.so")
assert run(python, pathlib.Path(__file__).with_name("training_step.py"), installed)

# tools/venv does the same in one command.
(scratch / "source/tools").mkdir()
shutil.copy(source / "tools/venv", scratch / "source/tools")
environment["PYTHON"] = sys.executable
made = subprocess.run([scratch / "source/tools/venv", scratch / "made"], cwd=scratch, env=environment, text=True,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
print(made.stdout, end="")
assert made.returncode == 0 and "PyTorch" in made.stdout and "bin/activate" in made.stdout, made.stdout
(installed,) = scratch.glob("made/lib/python*/site-packages/renorm/librenorm.so")
assert run(scratch / "made/bin/python", pathlib.Path(__file__).with_name("training_step.py"), installed)

# Problems are one sentence.
environment["RENORM_PREBUILT"] = str(scratch / "librenorm.so")
failed = subprocess.run(build, cwd=scratch, env=environment, text=True, capture_output=True)
sentence = f"error: renorm: there is no {scratch / 'librenorm.so'}"
assert failed.returncode != 0 and sentence in failed.stderr, failed.stderr
shutil.rmtree(scratch)
