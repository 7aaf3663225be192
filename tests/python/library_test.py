"""import renorm: which library is loaded, and the one sentence where that fails; and the examples in the docstrings.

usage: PYTHONPATH=python [RENORM_LIBRARY=librenorm.so|none] python3 library_test.py
"""
import doctest
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import torch

import renorm

PACKAGE = Path(renorm.__file__).parent


def run(code, **variables):
    """A new Python: exit code, output, errors."""
    environment = {key: value for key, value in os.environ.items() if key != "RENORM_LIBRARY"}
    environment.update(variables)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Import(unittest.TestCase):
    def test_without_a_library_it_warns_once_and_works(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "renorm"
            copy.mkdir()
            for file in PACKAGE.glob("*.py"):
                (copy / file.name).write_text(file.read_text())
            code, output, errors = run("import renorm, torch; renorm.BatchRenorm2d(3)(torch.randn(4, 3, 5, 5)); "
                                       "print(renorm.has_kernels)", PYTHONPATH=folder)
        self.assertEqual((code, output), (0, "False\n"), errors)
        self.assertEqual(errors.count("UserWarning"), 1, errors)
        self.assertIn("no compiled library here", errors)
        self.assertIn("pip install --no-build-isolation", errors)

    def test_none_is_silent(self):
        code, output, errors = run("import renorm; print(renorm.has_kernels)", RENORM_LIBRARY="none")
        self.assertEqual((code, output), (0, "False\n"), errors)
        self.assertNotIn("UserWarning", errors)

    def check_refused(self, text, description):
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "librenorm.so"
            library.write_bytes(b"not a library")
            (Path(folder) / "library.json").write_text(description)
            code, _, errors = run("import renorm", RENORM_LIBRARY=str(library))
        self.assertNotEqual(code, 0)
        last = errors.strip().splitlines()[-1]
        self.assertTrue(last.startswith("ImportError: renorm: "), errors)
        self.assertRegex(last, text)

    def test_a_library_for_another_pytorch(self):
        self.check_refused(r"built for PyTorch 9\.9\.0, but this is PyTorch .*; build it again", json.dumps({"torch": "9.9.0"}))

    def test_a_file_that_is_no_library(self):
        self.check_refused("cannot be loaded", json.dumps({"torch": torch.__version__.split("+")[0]}))

    def test_a_damaged_description(self):
        self.check_refused(r"library\.json cannot be read", "{")
        for description in ("[1]", "5", '{"torch": 5}'):
            self.check_refused(r"library\.json must be a JSON object of strings; build it again", description)

    def test_a_missing_library(self):
        code, _, errors = run("import renorm", RENORM_LIBRARY="/nonexistent/librenorm.so")
        self.assertNotEqual(code, 0)
        self.assertIn("ImportError: renorm: /nonexistent/librenorm.so cannot be loaded", errors)


class Docstrings(unittest.TestCase):
    def test_examples(self):
        tried = 0
        for module in [renorm] + [importlib.import_module(f"renorm.{found.name}")
                                  for found in pkgutil.iter_modules([str(PACKAGE)]) if found.name != "bench"]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = doctest.testmod(module, extraglobs={"torch": torch})
            self.assertEqual(result.failed, 0, module.__name__)
            tried += result.attempted
        self.assertGreater(tried, 10)

    def test_every_public_name_is_documented(self):
        for name in renorm.__all__:
            value = getattr(renorm, name)
            if callable(value):
                self.assertTrue(value.__doc__, name)

    def test_every_public_function_has_an_example(self):
        """Classes that users do not make are shown by the functions that do. load_run needs a folder."""
        without = {"ClipTelemetry", "FusedReLU", "ModelCard", "load_run"}
        finder = doctest.DocTestFinder(recurse=False)
        for name in renorm.__all__:
            value = getattr(renorm, name)
            if callable(value) and name not in without:
                examples = [example for found in finder.find(value, name) for example in found.examples]
                self.assertTrue(any(name in example.source for example in examples), name)
        self.assertIn('renorm.load_run("', renorm.load_run.__doc__)


if __name__ == "__main__":
    unittest.main()
