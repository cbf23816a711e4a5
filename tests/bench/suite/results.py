# SPDX-License-Identifier: BSD-3-Clause
"""The JSON files: the machine, the settings, each run's numbers, and what was left out with the reason; and a summary, which has the
figures alone."""
import json

from .cpu_distance import SET_ASIDE_SHARE
from .spread import Values

FORMAT = 2
SUMMARY_FORMAT = "summary 1"
SUMMARY_DIGITS = 4  # far below the noise


class Results:
    def __init__(self, machine, settings):
        self.machine = machine
        self.settings = settings
        self.runs = []
        self.skipped = {}
        self.failed = []
        self.distance = None  # of the two CPUs, Watch.looks().summary()

    def add(self, measurement, number, began, noise, figures, counters, windows=None):
        """`windows`: {figure: [begin, end]}, for figures that depend on the CPUs' distance."""
        self.runs.append({"measurement": measurement, "round": number, "began": began, "noise": noise, "figures": figures,
                          "counters": counters, "windows": windows or {}, "far_share": {}})

    def judge(self, looks):
        """Computes, for every figure, the share of its time during which the two CPUs were apart."""
        self.distance = looks.summary()
        for run in self.runs:
            run["far_share"] = {figure: round(looks.far_share(*window), 3) for figure, window in run["windows"].items()}

    def write(self, path):
        with open(path, "w") as file:
            json.dump({"format": FORMAT, "machine": self.machine, "settings": self.settings, "distance": self.distance,
                       "skipped": self.skipped, "failed": self.failed, "runs": self.runs}, file, indent=1)
            file.write("\n")

    @classmethod
    def read(cls, path):
        with open(path) as file:
            text = json.load(file)
        if text.get("format") != FORMAT:
            raise ValueError(f"{path} is not of format {FORMAT}")
        results = cls(text["machine"], text["settings"])
        results.runs, results.skipped, results.failed = text["runs"], text["skipped"], text["failed"]
        results.distance = text["distance"]
        return results

    def write_summary(self, path):
        """What a comparison needs: the values of every figure, a line each."""
        def brief(values):
            return [float(f"{value:.{SUMMARY_DIGITS}g}") for value in values]

        lines = [f"  {json.dumps(figure)}: {json.dumps({metric: brief(values) for metric, values in metrics.items()})}"
                 for figure, metrics in sorted(self.samples().items())]
        with open(path, "w") as file:
            file.write(f'{{\n "format": {json.dumps(SUMMARY_FORMAT)},\n "machine": {json.dumps(self.machine)},\n "figures": {{\n')
            file.write(",\n".join(lines) + "\n }\n}\n")

    def _taken(self):
        """{figure: {metric: [(value, moment, whether the CPUs were apart)]}}"""
        taken = {}
        # By round: within one, a figure's turns are in the order of execution.
        for run in sorted(self.runs, key=lambda run: run["round"]):
            for figure, metrics in run["figures"].items():
                apart = run["far_share"].get(figure, 0.0) > SET_ASIDE_SHARE
                for metric, value in metrics.items():
                    values = taken.setdefault(figure, {}).setdefault(metric, [])
                    turn = sum(moment[0] == run["round"] for _, moment, _ in values)
                    values.append((value, (run["round"], turn), apart))
        return taken

    def samples(self):
        """{figure: {metric: its Values}}: those taken while the CPUs were near; if there are none, all."""
        found = {}
        for figure, metrics in self._taken().items():
            for metric, values in metrics.items():
                kept = [(value, moment) for value, moment, apart in values if not apart]
                values_near = kept or [(value, moment) for value, moment, _ in values]
                found.setdefault(figure, {})[metric] = Values([value for value, _ in values_near], [moment for _, moment in values_near],
                                                              len(values), bool(kept))
        return found

    def near_runs(self, figure):
        """The number of its runs that were taken while the CPUs were near."""
        metrics = self._taken().get(figure, {})
        return min((sum(not apart for _, _, apart in values) for values in metrics.values()), default=0)

    def timeouts(self):
        """{figure: transport timeouts in all}, for figures that have any."""
        found = {}
        for run in self.runs:
            for figure, counters in run["counters"].items():
                if counters.get("timeouts"):
                    found[figure] = found.get(figure, 0) + counters["timeouts"]
        return found


class Summary:
    """What Results.write_summary wrote."""

    def __init__(self, machine, figures):
        self.machine = machine
        self.figures = figures

    def samples(self):
        return self.figures


def read_for_comparison(path):
    """Results or a Summary."""
    with open(path) as file:
        text = json.load(file)
    if text.get("format") == SUMMARY_FORMAT:
        return Summary(text["machine"], text["figures"])
    return Results.read(path)
