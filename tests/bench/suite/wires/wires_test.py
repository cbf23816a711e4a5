# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the measurements over wires that do not depend on the speed of anything."""
import json
import os
import tempfile
import unittest
import unittest.mock as mock

from . import crowd, mpi, network, perftest
from .. import compare, plan, table, targets
from ..outcome import RunFailed, Unavailable
from ..suite_test import results_of

LATENCY = """---------------------------------------------------------------------------------------
                    Send Latency Test
 Dual-port       : OFF\t\tDevice         : faultline0
 local address: LID 0000 QPN 0x000011 PSN 0x000022
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\x20
 64      5000          4.42           123.84       9.09     \t       11.82       \t5.79   \t\t32.01   \t\t45.91\x20\x20
---------------------------------------------------------------------------------------
"""
BANDWIDTH = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      70926            0.00               4432.74\t\t   0.070924
---------------------------------------------------------------------------------------
"""


class Parsers(unittest.TestCase):
    def test_latencies_of_perftest(self):
        self.assertEqual(perftest.parsed_latency(LATENCY), {"p50_us": 9.09, "mean_us": 11.82, "p99_us": 32.01})

    def test_bandwidth_of_perftest(self):
        metrics = perftest.parsed_bandwidth(BANDWIDTH)
        self.assertAlmostEqual(metrics["messages_per_second"], 70924)
        self.assertAlmostEqual(metrics["gb_per_second"], 70924 * 65536 / 1e9)

    def test_output_of_perftest_without_figures(self):
        titles = LATENCY.partition(" 64 ")[0].rstrip()
        for output in ("", " Completion with error at client\n", titles, BANDWIDTH):
            self.assertRaises(RunFailed, perftest.parsed_latency, output)
        self.assertRaises(RunFailed, perftest.parsed_bandwidth, LATENCY)

    def test_json_below_warnings(self):
        for parsed, line in ((mpi.parsed, '{"p50_us": 2.5, "p99_us": 3.5, "mean_us": 2.75}'), (crowd.parsed, '{"processes": 2, "pids": [7, 8]}')):
            self.assertEqual(parsed(f"a warning of mpirun\n{line}\n"), json.loads(line))
            self.assertRaises(RunFailed, parsed, "a warning\n")

    def test_reason_of_the_library(self):
        printed = "faultline: wire w has 32 devices\ncrowd: ibv_get_device_list: No such device\n"
        self.assertEqual(crowd.reason_of(printed), "faultline: wire w has 32 devices")
        self.assertIsNone(crowd.reason_of("crowd: process 7 ended with signal 9\n"))

    def test_memory_of_a_process(self):
        rollup = "5600-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    49216 kB\nPss:     1024 kB\nPss_Dirty:  512 kB\n"
        self.assertEqual(crowd.kib_of(rollup, "Pss"), 1024)
        self.assertRaises(RunFailed, crowd.kib_of, rollup, "VmRSS")


class Settings(unittest.TestCase):
    def test_size_of_the_crowd(self):
        self.assertEqual(crowd.sizes({}), (24,))
        self.assertEqual(crowd.sizes({"FAULTLINE_CROWD": "128"}), (24, 128))
        self.assertEqual(crowd.sizes({"FAULTLINE_CROWD": "24"}), (24,))
        for wrong in ("", "many", "1", "-3", "2.5", "1001"):
            with self.assertRaisesRegex(ValueError, "FAULTLINE_CROWD must be"):
                crowd.sizes({"FAULTLINE_CROWD": wrong})

    def test_a_larger_crowd_is_measured_beside_the_usual_one(self):
        with mock.patch.dict(os.environ, {"FAULTLINE_CROWD": "128"}):
            names = [one.name for block in plan.blocks(only="^wire/crowd") for one in block.measurements]
        self.assertEqual(names, ["wire/crowd/24", "wire/crowd/128"])

    def test_what_is_missing_is_no_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            context = mock.Mock(build=folder, folder=folder, cpus=(0, 0))
            with self.assertRaisesRegex(Unavailable, "faultline-run is not built"), network.wire(context):
                pass
            with self.assertRaisesRegex(Unavailable, "no_such_program is not installed"), network.wire(context, "no_such_program"):
                pass


class Table(unittest.TestCase):
    RESULTS = results_of({
        "memif/write/64": {"messages_per_second": [8e6, 8e6, 8e6]},
        "wire/ucx_tag_lat/verbs/64": {"p50_us": [2.0, 3.0, 4.0]},
        "wire/ucx_tag_lat/tcp/64": {"p50_us": [4.0, 4.0, 4.0]},
        "wire/idle": {"cpu_ms": [5.0, 4.0, 6.0], "resident_mib": [48.0, 48.0, 48.0]},
        "wire/three_pairs": {"gb_per_second": [3.0, 3.0, 3.0], "to_one_pair": [0.8, 0.7, 0.9]},
    })

    def test_wires_come_first(self):
        page = table.page(self.RESULTS)
        self.assertLess(page.index("64 B `ib_send_lat` over a wire"), page.index("64 B WRITE, one QP, memif"))
        self.assertLess(page.index("### wire"), page.index("### memif"))

    def test_figures_without_a_target(self):
        rows = table.target_rows(self.RESULTS.samples())
        self.assertIn("| 64 B UCX `tag_lat`, half round trip p50, verbs on a wire | 3.00 us | 2.00 us to 4.00 us |  |  |", rows)
        self.assertIn("| 64 B UCX `tag_lat`, half round trip p50, verbs to TCP | 0.750 | 0.500 to 1.00 |  |  |", rows)
        self.assertIn("| the same, to one pair | 0.800 | 0.700 to 0.900 |  |  |", rows)
        self.assertIn("| two idle programs and their switch, CPU time | 5.00 ms in 10 s | 4.00 ms in 10 s to 6.00 ms in 10 s |  |  |", rows)
        self.assertIn("| 64 KiB `ib_write_bw` over a wire |  |  |  | not measured |", rows)

    def test_references_have_no_code_of_faultline(self):
        ours = {figure: next(compare.differences(*2 * [{figure: {"p50_us": [1.0]}}])).ours for figure in targets.figures()}
        self.assertTrue(ours["wire/ucx_tag_lat/verbs/64"] and ours["wire/send_lat/64"] and ours["wire/mpi_pingpong/verbs/64"])
        self.assertFalse(any(ours[f"wire/{name}"] for name in ("ucx_tag_lat/tcp/64", "ucx_tag_lat/shm/64", "ucx_tag_bw/tcp/64k",
                                                                "mpi_pingpong/tcp/64")))
