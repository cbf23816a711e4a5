# SPDX-License-Identifier: BSD-3-Clause
"""Runs rdma-core's own tests of dma-bufs and of device memory, as pyverbs_run.py does: pyverbs_dma_buf.py SUITE RESULTS --dev NAME

pyverbs calls DmaBuf.add_ref, a method of C alone, on a variable without a type: Python finds no such attribute (rdma-core 44 to 65, Cython
3). So each buffer is of a subclass that has it.
"""
import os
import runpy
import sys
import weakref
from importlib.machinery import SourceFileLoader

from pyverbs.dmabuf import DmaBuf
from pyverbs.mr import DmaBufMR

suite = sys.argv[1]


class Buffer(DmaBuf):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.regions = weakref.WeakSet()

    def add_ref(self, region):
        self.regions.add(region)


class Region(DmaBufMR):
    def __init__(self, pd, length, access, dmabuf=None, offset=0, gpu=0, gtt=0):
        super().__init__(pd, length, access, dmabuf or Buffer(length + offset, gpu, gtt), offset, gpu, gtt)


sys.path.insert(0, suite)
SourceFileLoader("tests", os.path.join(suite, "__init__.py")).load_module()
sys.modules["tests.test_mr"].DmaBufMR = Region
sys.argv[3:3] = ["--only", "DmaBufMRTest,DmaBufTestCase,DMTest"]
runpy.run_path(os.path.join(os.path.dirname(os.path.realpath(__file__)), "pyverbs_run.py"), run_name="__main__")
