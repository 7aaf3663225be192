"""The installed Python package is complete, uses the installed library, and can be imported from any folder.

usage: python3 package_test.py DIST_PACKAGES LIBRARY SOURCE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

folder, library, source = map(pathlib.Path, sys.argv[1:])
package = folder / "renorm"
names = {str(file.relative_to(package)) for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc"}
modules = {str(file.relative_to(source / "python/renorm")) for file in (source / "python/renorm").rglob("*.py")}
assert "__init__.py" in modules
assert names == modules | {"py.typed", "library.json"}, f"{sorted(names)} installed, sources: {sorted(modules)}"

described = json.loads((package / "library.json").read_text())
assert not os.path.isabs(described["library"]), described
assert os.path.samefile(package / described["library"], library), described

environment = {name: value for name, value in os.environ.items() if not name.startswith("RENORM_")}
environment.update(PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1")
with tempfile.TemporaryDirectory() as elsewhere:
    step = pathlib.Path(__file__).with_name("training_step.py")
    subprocess.run([sys.executable, step, library], cwd=elsewhere, env=environment, check=True)
