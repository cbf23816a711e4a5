# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the suite that do not depend on the speed of anything."""
import itertools
import os
import subprocess
import tempfile
import time
import unittest
import unittest.mock as mock
import xml.etree.ElementTree

from . import compare, cores, cpu_distance, libfabric, perf, plan, spread, swap, table, targets, testpmd, ucx, units
from .drawing import plots
from .outcome import RunFailed
from .processes import Child, side_cpus
from .results import Results, read_for_comparison
from .sizes import bytes_of, label_of

BENCH = os.path.join(os.path.dirname(__file__), "..", "..", "..", "scripts", "bench")
MACHINE = {"cpu": "a CPU", "cpus": 2, "flags": ["avx2"], "governor": "not told", "kernel": "6.1", "memory_mib": 4096, "huge_pages": 0,
           "compiler": "g++", "dpdk": "22.11", "ucx": "1.13", "libfabric": "1.17", "commit": "0123456789abcdef", "changed_since": False}
SETTINGS = {"rounds": 5, "seconds": 0.5, "quick": False, "only": ""}
QUIET = {"load": 0.0, "busy_share": 1.0, "stolen_share": 0.0}


def results_of(values, machine=None):
    """Results in which every figure of {figure: {metric: [values]}} was measured, one value a round."""
    results = Results({**MACHINE, **(machine or {})}, SETTINGS)
    for figure, metrics in values.items():
        for number in range(len(next(iter(metrics.values())))):
            results.add(figure, number, 0.0, QUIET, {figure: {metric: runs[number] for metric, runs in metrics.items()}}, {})
    return results


def figures_of(measurement):
    """The names of the figures that it returns."""
    run, given = measurement.run, measurement.run.keywords
    if run.func is perf.measure:
        options = dict(itertools.pairwise(given["options"]))
        return {f"{given['prefix'].format(region=region)}/{op}/{size}" for region in options.get("--region", "odp").split(",")
                for op in options["--op"].split(",") for size in options["--size"].split(",")}
    if run.func is testpmd.measure:
        return {f"raw/{given['kind']}/{given['frame_bytes']}"}
    if run.func is ucx.measure:
        prefix = given.get("prefix", f"ucx/{given['transport']}/{given['test']}")
        return {f"{prefix}/{size}" for size in given["sizes"]}
    if run.func is swap.measure:
        return {"swap/write/64", "swap/populate"}
    return {given.get("name", measurement.name)}


def figures_of_plan(quick):
    return set().union(*(figures_of(one) for block in plan.blocks(quick) for one in block.measurements))


class Statistics(unittest.TestCase):
    def test_p_of_sides_that_are_wholly_apart(self):
        self.assertAlmostEqual(spread.mann_whitney_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]), 2 / 252)
        self.assertAlmostEqual(spread.mann_whitney_p([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]), 2 / 252)

    def test_p_of_one_exchange(self):
        # U = 1: four partitions of ten values separate them as far.
        self.assertAlmostEqual(spread.mann_whitney_p([1, 2, 3, 4, 6], [5, 7, 8, 9, 10]), 4 / 252)

    def test_p_by_trying_every_deal(self):
        values, others = [3.0, 1.5, 8.0, 3.0], [2.0, 9.0, 3.0, 7.0, 1.5]
        pool = values + others
        ranks = [sum(other < value for other in pool) + (pool.count(value) + 1) / 2 for value in pool]
        mean = len(values) * (len(pool) + 1) / 2
        found = abs(sum(ranks[:len(values)]) - mean)
        deals = [abs(sum(deal) - mean) >= found - 1e-9 for deal in itertools.combinations(ranks, len(values))]
        self.assertAlmostEqual(spread.mann_whitney_p(values, others), sum(deals) / len(deals))

    def test_p_of_the_same_is_one(self):
        self.assertEqual(spread.mann_whitney_p([1, 1, 1], [1, 1, 1, 1]), 1.0)

    def test_the_smallest_p_is_what_sides_apart_have(self):
        self.assertAlmostEqual(spread.smallest_p(4, 6), spread.mann_whitney_p([1, 2, 3, 4], [5, 6, 7, 8, 9, 10]))

    def test_ratios_are_of_neighbours_where_there_are_pairs(self):
        self.assertEqual(spread.ratios([2, 9], [1, 3]), [2, 3])
        self.assertEqual(spread.ratios([2, 4, 6], [2]), [2])
        self.assertEqual(spread.ratios([], [1]), [])

    def test_neighbours_are_of_one_round_and_turn(self):
        values = spread.Values([2, 9, 8], [(0, 0), (1, 0), (2, 0)], 3)
        self.assertEqual(spread.ratios(values, spread.Values([3, 2], [(1, 0), (2, 0)], 3)), [3, 4])
        self.assertEqual(spread.ratios(values, spread.Values([4], [(7, 0)], 1)), [2])


class Distance(unittest.TestCase):
    """Measurements while the host has the two CPUs apart."""

    LOOKS = cpu_distance.Looks([(when, 250.0 if 10 <= when < 20 else 50.0) for when in range(30)])

    def results(self):
        results = Results(MACHINE, SETTINGS)
        for number, (value, window) in enumerate([(5.0, [0, 9]), (1.0, [10, 19]), (6.0, [20, 29]), (4.0, [5, 10])]):
            results.add("a", number, 0.0, QUIET, {"a/write": {"rate": value}, "a/port": {"rate": 2 * value}}, {}, {"a/write": window})
        results.judge(self.LOOKS)
        return results

    def test_share_of_looks_that_found_them_apart(self):
        self.assertEqual(self.LOOKS.far_share(0, 9), 0.0)
        self.assertEqual(self.LOOKS.far_share(5, 14), 0.5)
        self.assertEqual(self.LOOKS.far_share(15.2, 15.8), 1.0)  # none in the interval: the one before
        self.assertEqual(cpu_distance.Looks([]).far_share(0, 9), 0.0)
        summary = self.LOOKS.summary()
        self.assertEqual((summary["near_ns"], summary["far_ns"]), (50.0, 250.0))
        self.assertAlmostEqual(summary["far_share"], 1 / 3)

    def test_a_figure_taken_apart_is_set_aside_and_told(self):
        results = self.results()
        samples = results.samples()
        self.assertEqual(samples["a/write"]["rate"], [5.0, 6.0, 4.0])
        self.assertEqual(samples["a/write"]["rate"].moments, [(0, 0), (2, 0), (3, 0)])
        self.assertEqual(samples["a/port"]["rate"], [10.0, 2.0, 12.0, 8.0])  # its distance does not count
        text = table.page(results)
        self.assertIn("3 of 4", text)
        self.assertIn("50 ns in most of 30 looks, and in 250 ns in 33 % of them", text)

    def test_where_no_run_was_near_all_are_told(self):
        results = Results(MACHINE, SETTINGS)
        results.add("a", 0, 0.0, QUIET, {"a/write": {"rate": 1.0}}, {}, {"a/write": [10, 19]})
        results.judge(self.LOOKS)
        self.assertEqual(results.samples()["a/write"]["rate"], [1.0])
        self.assertIn("1, all apart", table.page(results))

    def test_what_lacks_near_runs_is_measured_again_in_whole_blocks(self):
        one, other = (plan.Measurement(name, None) for name in "ab")
        blocks = [plan.Block((other,)), plan.Block((one, other))]
        results = self.results()
        self.assertEqual(plan.wanting(blocks, results, 4, {"a/write"}), [blocks[1]])
        self.assertEqual(plan.wanting(blocks, results, 3, {"a/write"}), [])
        self.assertEqual(plan.wanting(blocks, results, 4, set()), [])
        self.assertEqual(plan.wanting(blocks, results, 6, set()), [blocks[1]])

    def test_the_program_looks_where_there_are_two_cpus(self):
        build = os.environ.get("FAULTLINE_BUILD")
        if not build or len(os.sched_getaffinity(0)) < 2:
            self.skipTest("neither a build nor two CPUs")
        context = mock.Mock(build=build, cpus=side_cpus())
        with cpu_distance.Watch(context) as watch:
            deadline = time.monotonic() + 10
            while len(watch.looks().looks) < 3 and time.monotonic() < deadline:
                time.sleep(0.05)
            looks = watch.looks().looks
        self.assertGreaterEqual(len(looks), 3)
        self.assertTrue(all(took > 0 for _, took in looks))
        self.assertLess(abs(looks[-1][0] - time.monotonic()), 10)


class Comparison(unittest.TestCase):
    def differences(self, before, after, metric="messages_per_second", figure="memif/write/64"):
        return list(compare.differences({figure: {metric: before}}, {figure: {metric: after}}))

    def test_what_is_apart_differs(self):
        one, = self.differences([10, 11, 10.5, 10.2, 10.8], [12, 12.5, 13, 12.2, 12.8])
        self.assertTrue(one.beyond_noise and one.better and one.ours)

    def test_what_overlaps_does_not(self):
        one, = self.differences([10, 11, 10.5, 10.2, 10.8], [12, 12.5, 10.3, 12.2, 12.8])
        self.assertTrue(one.change > 0.03 and one.enough)
        self.assertFalse(one.beyond_noise)

    def test_what_is_apart_by_little_does_not(self):
        one, = self.differences([100, 100.1, 100.2, 100.3, 100.4], [101, 101.1, 101.2, 101.3, 101.4])
        self.assertLess(one.p, compare.ALPHA)
        self.assertFalse(one.beyond_noise)

    def test_few_runs_say_nothing(self):
        one, = self.differences([1, 1, 1, 1], [2, 2, 2, 2])
        self.assertFalse(one.enough or one.beyond_noise)

    def test_less_time_is_better(self):
        one, = self.differences([10] * 5, [8] * 5, "p50_us")
        self.assertTrue(one.beyond_noise and one.better)

    def test_the_report_tells_the_machine_from_us(self):
        values = {"memif/write/64": {"messages_per_second": [10e6] * 5}, "raw/memif/138": {"packets_per_second": [5e7] * 5},
                  "memif/read/64": {"messages_per_second": [3e6] * 5}}
        after = {figure: {metric: [run * (0.5 if "read" not in figure else 1.0) for run in runs] for metric, runs in metrics.items()}
                 for figure, metrics in values.items()}
        printed = compare.report(results_of(values), results_of(after, {"kernel": "6.2"}))
        machine, ours = printed.split("Beyond the noise:")
        self.assertIn("Another kernel: 6.1 / 6.2", machine)
        self.assertIn("raw/memif/138", machine)
        self.assertIn("| memif/write/64 | messages_per_second | 10.0 | 5.00 M/s | -50.0% | worse |", ours)
        self.assertNotIn("memif/read/64", printed)


class Plan(unittest.TestCase):
    def test_names_and_figures_are_there_once(self):
        for quick in (False, True):
            measurements = [one for block in plan.blocks(quick) for one in block.measurements]
            names = [one.name for one in measurements]
            self.assertEqual(len(names), len(set(names)))
            figures = [figure for one in measurements for figure in figures_of(one)]
            self.assertEqual(len(figures), len(set(figures)))

    def test_every_target_is_measured_also_by_a_quick_run(self):
        for quick in (False, True):
            measured = figures_of_plan(quick)
            for target in targets.TARGETS:
                self.assertIn(target.figure, measured)
                if target.against:
                    self.assertIn(target.against[0], measured)

    def test_every_plot_is_of_what_is_measured(self):
        measured = figures_of_plan(False)
        for plot in plots.PLOTS:
            for name, figures in plot.series:
                self.assertEqual(len(figures), len(plot.labels), name)
                self.assertGreater(sum(figure in measured for figure, _ in figures), 1, f"{plot.name}: {name}")

    def test_only_chooses(self):
        names = [one.name for block in plan.blocks(only="^memif/icrc_(on|off)$") for one in block.measurements]
        self.assertEqual(names, ["memif/icrc_on", "memif/icrc_off"])
        self.assertEqual(plan.blocks(only="no such name"), [])

    def test_turns_and_rounds_alternate(self):
        block = plan.Block((plan.Measurement("a", None), plan.Measurement("b", None)), 2)
        alone = plan.Block((plan.Measurement("c", None),))
        order = [(number, one.name) for number, one in plan.in_order([block, alone], 2)]
        self.assertEqual("".join(name for number, name in order if number == 0), "abbac")
        self.assertEqual("".join(name for number, name in order if number == 1), "cbaab")

    def test_frames_are_as_long_as_ours(self):
        self.assertEqual(plan.FRAME_OF_64, 138)
        self.assertEqual(plan.packets_of("64k"), 16)


class Words(unittest.TestCase):
    def test_sizes(self):
        for label, size_bytes in (("8", 8), ("1k", 1024), ("64k", 65536), ("8m", 8 << 20)):
            self.assertEqual(bytes_of(label), size_bytes)
            self.assertEqual(label_of(size_bytes), label)
        self.assertEqual(label_of(5000), "5000")

    def test_numbers(self):
        self.assertEqual(units.written(12_345_678, "messages_per_second"), "12.3 M/s")
        self.assertEqual(units.written(0.0123, "cpu_share"), "1.23 % of a CPU")
        self.assertEqual([units.rounded(number) for number in (0.01234, 0.25, 1, 99.94, 1234.5)],
                         ["0.0123", "0.250", "1.00", "99.9", "1,234"])

    def test_what_others_say(self):
        # With a hundred iterations the line begins with a blank.
        printed = ("iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
                " 100,0.671,91.939,91.939,1,1,2,10877\n")
        self.assertEqual(ucx.parsed(printed), {"percentile_us": 0.671, "messages_per_second": 10877.0})
        self.assertRaises(RunFailed, ucx.parsed, printed.splitlines()[0])
        printed = ("a warning\nbytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
                "64 10k =10k 1.2m 0.70s 1.82 35.08 0.03\n")
        self.assertEqual(libfabric.parsed(printed), 35.08)
        self.assertRaises(RunFailed, libfabric.parsed, "a warning\n")

    def test_two_kinds_of_memory_that_took_turns(self):
        run = {"op": "write", "size": 64, "mode": "bw", "messages_per_second": 8e6, "gb_per_second": 0.5, "window_s": [1, 2], "messages": 4,
               "seconds": 1.0, "faults": 0, "rnr_naks": 0, "retransmissions": 0, "timeouts": 0}
        runs = [{**run, "region": "odp", "beside": {"region": "pinned", "quads": 25, "ratio": {"p10": 0.9, "p50": 0.99, "p90": 1.1}}},
                {**run, "region": "pinned"}]
        figures, counters = perf._figures(runs, "memif/{region}")
        self.assertEqual(figures["memif/odp/write/64"], {"messages_per_second": 8e6, "gb_per_second": 0.5, "to_pinned": 0.99})
        self.assertEqual(figures["memif/pinned/write/64"], {"messages_per_second": 8e6, "gb_per_second": 0.5})
        self.assertEqual(counters["memif/pinned/write/64"]["window_s"], [1, 2])
        printed = table.page(results_of({figure: {metric: [value] * 5 for metric, value in metrics.items()}
                                      for figure, metrics in figures.items()}))
        self.assertIn("| warm on-demand against pinned: WRITE of 64, rate | 0.990 | 0.990 to 0.990 | at least 0.980 | reached |", printed)
        self.assertIn("| memif/odp/write/64 | to_pinned | 0.990 | 0.990 to 0.990 | 5 |", printed)

    def test_what_google_benchmark_says_of_cores(self):
        runs = [{"name": f"cores_write/threads:{number}", "threads": number, "items_per_second": 4e6 * number} for number in (1, 2)]
        runs.append({"name": "cores_write/threads:4", "threads": 4, "error_occurred": True})
        self.assertEqual(cores.parsed({"benchmarks": runs}),
                         {"lcores/1": {"messages_per_second": 4e6}, "lcores/2": {"messages_per_second": 8e6}})


class Files(unittest.TestCase):
    def test_results_come_back_as_they_were_written(self):
        results = results_of({"memif/write/64": {"messages_per_second": [1.0, 2.0], "gb_per_second": [3.0, 4.0]}})
        results.runs[1]["counters"] = {"memif/write/64": {"timeouts": 2}}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            results.write(path)
            again = Results.read(path)
        self.assertEqual(again.samples(), {"memif/write/64": {"messages_per_second": [1.0, 2.0], "gb_per_second": [3.0, 4.0]}})
        self.assertEqual(again.timeouts(), {"memif/write/64": 2})

    def test_a_summary_compares_like_its_results(self):
        values = {"memif/write/64": {"messages_per_second": [10e6] * 5}, "memif/lat/send/64": {"p50_us": [0.51234567, 0.5, 0.5, 0.5, 0.5]}}
        before, after = results_of(values), results_of({"memif/write/64": {"messages_per_second": [12e6] * 5}}, {"kernel": "6.2"})
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary.json")
            before.write_summary(path)
            again = read_for_comparison(path)
            self.assertEqual(compare.report(again, after), compare.report(before, after))
            self.assertIn("| +20.0% | better |", compare.report(again, after))
            self.assertEqual(again.samples()["memif/lat/send/64"]["p50_us"], [0.5123, 0.5, 0.5, 0.5, 0.5])
            after.write(path)
            self.assertEqual(read_for_comparison(path).samples(), after.samples())

    def test_the_table_says_what_was_reached(self):
        results = results_of({
            "memif/write/64": {"messages_per_second": [11e6, 13e6, 14e6]},
            "raw/memif/138": {"packets_per_second": [55e6, 130e6, 140e6]},
            "memif/lat/send/64": {"p50_us": [0.7, 0.8, 0.5]},
        })
        results.skipped["tap/lat"] = "no tap"
        printed = table.page(results)
        self.assertIn("| 64 B WRITE, one QP, memif | 13.0 M/s | 11.0 M/s to 14.0 M/s | at least 12.0 M/s | reached |", printed)
        self.assertIn("| 0.100 | 0.100 to 0.200 | at least 0.250 | **not reached** |", printed)
        self.assertIn("| 0.700 us | 0.500 us to 0.800 us | at most 0.600 us | **not reached** |", printed)
        self.assertIn("| an idle device |  |  | at most 1.00 % of a CPU | not measured |", printed)
        self.assertIn("skipped: tap/lat: no tap", printed)

    def test_plots_are_drawings_to_scale(self):
        samples = results_of({f"memif/write/{label}": {"messages_per_second": [10.0 ** place * 1e6, 10.0 ** place * 2e6]}
                              for place, label in enumerate(("8", "64", "256"))}).samples()
        plot, = plots.drawable(samples)
        drawing = xml.etree.ElementTree.fromstring(plots.draw(plot, samples))
        heights = [float(dot.get("cy")) for dot in drawing.iter("{http://www.w3.org/2000/svg}circle")]
        self.assertEqual(len(heights), 3)
        self.assertAlmostEqual(heights[0] - heights[1], heights[1] - heights[2], delta=0.2)
        self.assertGreater(heights[0] - heights[1], 50)


class Programs(unittest.TestCase):
    def test_a_child_ends_with_its_block_and_all_that_it_started(self):
        with Child(["sh", "-c", "sleep 1000 & echo $!; wait"]) as child:
            child.wait_for(lambda: child.output().strip(), "its line")
            started = int(child.output())
        self.assertIsNotNone(child.process.poll())
        deadline = 200
        while os.path.exists(f"/proc/{started}") and deadline:
            with open(f"/proc/{started}/stat") as file:
                if file.read().split()[2] == "Z":
                    break
            deadline -= 1
            subprocess.run(["sleep", "0.05"], check=True)
        self.assertGreater(deadline, 0)

    def test_what_fails_says_so(self):
        with Child(["sh", "-c", "echo it broke; exit 3"]) as child:
            with self.assertRaisesRegex(RunFailed, "sh ended with 3: it broke"):
                child.finish(20)
        with Child(["sh", "-c", "exit 0"]) as child:
            with self.assertRaisesRegex(RunFailed, "ended before its port"):
                child.wait_for(lambda: False, "its port")


class Script(unittest.TestCase):
    def run_it(self, *arguments):
        return subprocess.run([BENCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def test_the_plan_is_listed(self):
        quick = self.run_it("--quick", "--list")
        self.assertEqual(quick.returncode, 0, quick.stderr)
        everything = self.run_it("--list").stdout.splitlines()
        self.assertLess(set(quick.stdout.splitlines()), set(everything))
        self.assertEqual(everything[0], "wire/send_lat/64")
        self.assertIn("raw/memif/138", quick.stdout.splitlines())
        self.assertEqual(self.run_it("--list", "--only", "^swap").stdout, "swap\n")

    def test_wrong_options_are_refused(self):
        for options in (["--list", "--only", "("], ["--list", "--rounds", "many"], ["--list", "--seconds", "-1"], ["--list", "--nonsense"]):
            self.assertEqual(self.run_it(*options).returncode, 2, options)

    def test_results_are_compared_and_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("before.json", "after.json")]
            for path, rate in zip(paths, (10e6, 12e6)):
                results_of({"memif/write/64": {"messages_per_second": [rate, rate, rate, rate, rate]}}).write(path)
            compared = self.run_it("--compare", *paths)
            self.assertEqual(compared.returncode, 0, compared.stderr)
            self.assertIn("| +20.0% | better |", compared.stdout)
            to_the_kept = self.run_it("--compare", paths[1])
            self.assertEqual(to_the_kept.returncode, 0, to_the_kept.stderr)
            self.assertIn("1 figures are in both", to_the_kept.stdout)
            self.assertEqual(self.run_it("--compare", *paths, paths[0]).returncode, 2)
            self.assertEqual(self.run_it("--table", paths[1]).returncode, 0)
            with open(os.path.join(folder, "README.md")) as file:
                self.assertIn("12.0 M/s", file.read())


if __name__ == "__main__":
    unittest.main()
