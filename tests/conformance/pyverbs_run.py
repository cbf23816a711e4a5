# SPDX-License-Identifier: BSD-3-Clause
"""Runs rdma-core's own pyverbs suite, unpacked and unmodified, and writes the result of each test, a line each:
id, pass, fail, error or skip, and the reason.
  pyverbs_run.py SUITE RESULTS [--only CLASS,CLASS...] --dev NAME
"""
import multiprocessing
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

suite, results = sys.argv[1:3]
del sys.argv[1:3]
only = None
if sys.argv[1] == '--only':
    only = sys.argv[2].split(',')
    del sys.argv[1:3]
sys.path.insert(0, suite)
from args_parser import parser  # noqa: E402  (the suite's)

# The suite gives children what cannot be pickled, as Python 3.14 would do by default.
multiprocessing.set_start_method('fork')
tests = SourceFileLoader('tests', os.path.join(suite, '__init__.py')).load_module()
parser.parse_args()


class Loader(unittest.TestLoader):
    def loadTestsFromTestCase(self, case):
        return super().loadTestsFromTestCase(case) if only is None or case.__name__ in only else self.suiteClass()


class Recorder(unittest.TextTestResult):
    def __init__(self, *args):
        super().__init__(*args)
        self.file = open(results, 'w', buffering=1)

    def record(self, test, result, reason=''):
        lines = str(reason).strip().splitlines()
        print(test.id(), result, lines[-1] if lines else '', sep='\t', file=self.file)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.record(test, 'pass')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.record(test, 'skip', reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.record(test, 'fail', err[1])

    def addError(self, test, err):
        super().addError(test, err)
        self.record(test, 'error', err[1])


unittest.main(module=tests, verbosity=0, testLoader=Loader(), testRunner=unittest.TextTestRunner(resultclass=Recorder, verbosity=0))
