#!/usr/bin/env python3
"""`renorm train` as several processes.

usage: workers_test.py RENORM PART [TEST...]

The parts are: same sizes settings failure signals resume rendezvous refusals meeting network fifty.
Exit code 77: all tests were skipped.
"""
import importlib
import os
import shutil
import sys
import unittest

import processes

PARTS = ["same", "sizes", "settings", "failure", "signals", "resume", "rendezvous", "refusals", "meeting", "network",
         "fifty"]
SKIPPED = 77


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in PARTS:
        sys.exit(__doc__)
    processes.RENORM = os.path.abspath(sys.argv[1])
    module = importlib.import_module(sys.argv[2] + "_part")
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in sys.argv[3:]] or None
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(loader.loadTestsFromModule(module))
    shutil.rmtree(processes.cache_folder(), ignore_errors=True)
    for test, reason in result.skipped:
        print(f"skipped: {test.id()}: {reason}")
    if result.testsRun == 0 or not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if len(result.skipped) == result.testsRun else 0)


main()
