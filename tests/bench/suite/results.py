# SPDX-License-Identifier: BSD-3-Clause
"""The JSON file: the machine, how it was run, each run's numbers, and what was left out and why."""
import json

FORMAT = 1


class Results:
    def __init__(self, machine, settings):
        self.machine = machine
        self.settings = settings
        self.runs = []
        self.skipped = {}
        self.failed = []

    def add(self, measurement, number, began, noise, figures, counters):
        self.runs.append({"measurement": measurement, "round": number, "began": began, "noise": noise, "figures": figures,
                          "counters": counters})

    def write(self, path):
        with open(path, "w") as file:
            json.dump({"format": FORMAT, "machine": self.machine, "settings": self.settings, "skipped": self.skipped,
                       "failed": self.failed, "runs": self.runs}, file, indent=1)
            file.write("\n")

    @classmethod
    def read(cls, path):
        with open(path) as file:
            text = json.load(file)
        if text.get("format") != FORMAT:
            raise ValueError(f"{path} is not of format {FORMAT}")
        results = cls(text["machine"], text["settings"])
        results.runs, results.skipped, results.failed = text["runs"], text["skipped"], text["failed"]
        return results

    def samples(self):
        """{figure: {metric: its values in the order of the runs}}"""
        found = {}
        # By round: within one, a figure's turns are in the order in which they were run.
        for run in sorted(self.runs, key=lambda run: run["round"]):
            for figure, metrics in run["figures"].items():
                for metric, value in metrics.items():
                    found.setdefault(figure, {}).setdefault(metric, []).append(value)
        return found

    def timeouts(self):
        """{figure: transport timeouts in all}, where there were any."""
        found = {}
        for run in self.runs:
            for figure, counters in run["counters"].items():
                if counters.get("timeouts"):
                    found[figure] = found.get(figure, 0) + counters["timeouts"]
        return found
