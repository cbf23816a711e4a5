#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts the functions, files and changes of room on the way of one WRITE of one packet and of one page fault.

    tests/bench/way.py                      builds build/way, runs way_trace there, prints a table
    tests/bench/way.py --list receive       the functions of one part, in the order of their first calls
    tests/bench/way.py --json FILE          everything, for other programs
    tests/bench/way.py --tree DIR           another checkout; its tests/bench needs way_trace.cpp and its target

The build folder has no optimisation, and every function reports each call and return, inlined functions too. So the counts are those of
the source text, not of the machine code. docs/design/packet.md, "Counting the way", states what counts.
"""
import argparse
import bisect
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOPS = ("stack", "odp", "pmd_glue", "apps")
FLAGS = ["-g1", "-finstrument-functions", "-finstrument-functions-exclude-file-list=/c++/,/lib/gcc/,/spdlog/,/fmt/,/tbb/,/oneapi/"]
LONG_BODY_LINES = 5

# The seams at which a way is cut: DPDK's bursts, and these functions. Older trees have other names for some.
RECEIVE_BURST, TRANSMIT_BURST = re.compile(r"(^|::)rte_eth_rx_burst$"), re.compile(r"(^|::)rte_eth_tx_burst$")
ON_REQUEST = re.compile(r"\bResponder::on_request$")
CORE_POLL = re.compile(r"\bCore::poll$")
REQUEST_FAULT = re.compile(r"\b(CoreContext)::request_fault$")
SESSION_WRITE = re.compile(r"\b(DomainSession|EngineDoor)::write$")
PAGER_ANSWERS = re.compile(r"\b(Pager|FaultScheduler)::(tell|answer)$")
PAGER_THREAD = "odp-pager"

Event = collections.namedtuple("Event", "kind thread function call_site")  # function and call_site: (module, offset)


class Function:
    """A function of the source text. All instances of a template are one function, and a lambda belongs to its function."""

    def __init__(self, name, path, line, last_line, body_lines):
        self.name, self.path, self.line, self.last_line, self.body_lines = name, path, line, last_line, body_lines
        self.room = str(pathlib.PurePosixPath(path).parent)

    def describe(self):
        return {"function": self.name, "file": self.path, "line": self.line, "body_lines": self.body_lines}


def without_templates(demangled):
    """The name without template arguments, without what stands for an unnamed namespace, and without clones."""
    name = demangled.replace("(anonymous namespace)::", "").replace("[abi:cxx11]", "")
    name = re.sub(r" \[clone [^]]*\]", "", name).replace("operator()", "operator@")
    kept, depth = [], 0
    for letter in name:
        depth += letter == "<"
        if depth == 0:
            kept.append(letter)
        depth -= letter == ">" and depth > 0
    return "".join(kept)


def is_lambda(demangled):
    return re.search(r"\{lambda\(.*\)#\d+\}::operator@", without_templates(demangled)) is not None


def short_name(demangled):
    """The name without namespaces of the project, template arguments and parameters."""
    name = without_templates(demangled).split("(")[0].split(" ")[-1].replace("operator@", "operator()")
    name = re.sub(r"^(faultline::)?((transport|odp|wire|glue|verbs|chaos|cm|base)::)*", "", name)
    return name + " {lambda}" if is_lambda(demangled) else name


def body_of(text, line, of_lambda=False):
    """(first line, last line, lines of code in the body) of the function whose signature ends in `line`; None if the compiler wrote it."""
    lines = text.split("\n")
    if line > len(lines):
        return None
    for first in range(line, max(0, line - 10), -1):
        if re.match(r"\s*(template\b.*)?(struct|class|union|using|enum)\b[^()]*$", lines[first - 1]):
            return None
        at = sum(len(each) + 1 for each in lines[:first - 1])
        if of_lambda and (capture := re.search(r"\[[^][]*\]\s*[({m]", lines[first - 1])):
            at += capture.start()
        if (found := body_after(text, at)) is not None:
            last, code = found
            return (first, last, code) if last >= line else None
    return None


def body_after(text, at):
    """The last line and the lines of code of the first body in text[at:]; None if that is no function from its beginning."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|[(){};\[\]]', re.DOTALL)
    parentheses = braces = 0
    values = 0  # braces of a member's initial value
    first = None
    for match in token.finditer(text, at):
        found = match.group()
        if braces:
            braces += (found == "{") - (found == "}")
            if braces == 0:
                inside = text[first + 1:match.start()].split("\n")
                code = [each for each in inside if each.strip() and not each.strip().startswith("//")]
                return text.count("\n", 0, match.start()) + 1, len(code)
        elif found in ("(", "["):
            parentheses += 1
        elif found in (")", "]"):
            parentheses -= 1
            if parentheses < 0:
                return None
        elif found == "{" and parentheses == 0 and values == 0 and text[match.start() - 1].isspace():
            braces, first = 1, match.start()
        elif found == "{":
            values += 1
        elif found == "}":
            values -= 1
        elif found == ";" and parentheses == 0:
            return None
    return None


class Symbols:
    """Finds the function of an address."""

    def __init__(self, tree, modules):
        self.tree, self.modules = tree, modules
        self.tables, self.known, self.texts = {}, {}, {}

    def table(self, module):
        if module not in self.tables:
            text = subprocess.check_output(["nm", "-C", "--defined-only", self.modules[module]], text=True, stderr=subprocess.DEVNULL)
            rows = sorted((int(row[0], 16), row[2]) for row in (line.split(" ", 2) for line in text.splitlines())
                          if len(row) == 3 and row[1] in "tTwWiu")
            self.tables[module] = ([row[0] for row in rows], [row[1] for row in rows])
        return self.tables[module]

    def start_of(self, place):
        """The first address of the function around an address."""
        module, offset = place
        if module not in self.modules:
            return place
        starts, _ = self.table(module)
        return module, starts[max(0, bisect.bisect_right(starts, offset) - 1)]

    def name_of(self, place):
        module, offset = place
        if module not in self.modules:
            return "?"
        starts, names = self.table(module)
        at = bisect.bisect_left(starts, offset)
        return short_name(names[at]) if at < len(starts) and starts[at] == offset else "?"

    def resolve(self, places):
        """Reads the source lines of all functions; a function that is not the product's has none."""
        by_module = collections.defaultdict(list)
        for place in places:
            if place[0] in self.modules:
                by_module[place[0]].append(place)
        for module, of_module in by_module.items():
            asked = "\n".join(hex(offset) for _, offset in of_module)
            lines = subprocess.run(["addr2line", "-e", self.modules[module]], input=asked, text=True, check=True, capture_output=True).stdout
            for place, where in zip(of_module, lines.splitlines()):
                path, _, line = where.split(" ")[0].rpartition(":")
                self.known[place] = self.function_at(place, path, int(line) if line.isdigit() else 0)
        self.join_lambdas()

    def function_at(self, place, path, line):
        path = os.path.relpath(os.path.realpath(path), self.tree)
        if path.split("/")[0] not in TOPS or line == 0:
            return None
        if path not in self.texts:
            self.texts[path] = (self.tree / path).read_text()
        name = self.name_of(place)
        body = body_of(self.texts[path], line, name.endswith("{lambda}"))
        return None if body is None else Function(name, path, *body)

    def join_lambdas(self):
        """A function inside the lines of another one belongs to it."""
        by_line = {}
        for function in self.known.values():
            if function is not None:
                by_line.setdefault((function.path, function.line), function)
        functions = sorted(by_line.values(), key=lambda each: (each.path, each.line))
        outer = {}
        around = None
        for function in functions:
            if around is not None and function.path == around.path and function.last_line <= around.last_line:
                outer[function.path, function.line] = around
            else:
                around = outer[function.path, function.line] = function
        self.known = {place: function and outer[function.path, function.line] for place, function in self.known.items()}


class Trace:
    """Everything that way_trace recorded, with the steps of each attempt."""

    def __init__(self, path):
        self.modules, self.threads, self.steps = {}, {}, []
        for line in open(path):
            kind, first, *rest = line.rstrip("\n").split(" ")
            if kind == "module":
                self.modules[first] = rest[0]
            elif kind == "thread":
                self.threads[first] = " ".join(rest)
            elif kind == "step":
                self.steps.append((" ".join(rest), []))
            elif self.steps:
                self.steps[-1][1].append(Event(kind, first, (rest[0], int(rest[1])), (rest[2], int(rest[3]))))
        self.main = "1"

    def places(self, symbols):
        found = set()
        for _, events in self.steps:
            for event in events:
                found |= {event.function, symbols.start_of(event.call_site)}
        return found


class Frames:
    """The calls of one thread in a list of events: each with its begin, its end, and the calls around it."""

    def __init__(self, events, thread, symbols):
        self.calls = []
        stack = []
        for i, event in enumerate(events):
            if event.thread != thread:
                continue
            if event.kind == "enter":
                call = {"name": symbols.name_of(event.function), "function": symbols.known.get(event.function), "begin": i,
                        "end": len(events), "around": list(stack)}
                self.calls.append(call)
                stack.append(call)
            elif stack:
                stack.pop()["end"] = i

    def find(self, pattern, begin=0):
        return [call for call in self.calls if call["begin"] >= begin and pattern.search(call["name"])]


class Way:
    """Functions in the order of their first calls."""

    def __init__(self):
        self.functions, self.threads = {}, []

    def add(self, function, thread="program"):
        if function is None:
            return
        if not self.threads or self.threads[-1] != thread:
            self.threads.append(thread)
        self.functions.setdefault((function.path, function.line), function)

    def add_all(self, other):
        for function in other.functions.values():
            self.add(function)
        return self

    def in_order(self, long_only):
        return [each for each in self.functions.values() if not long_only or each.body_lines >= LONG_BODY_LINES]

    def counts(self, long_only):
        functions = self.in_order(long_only)
        rooms = [function.room for function in functions]
        return {"functions": len(functions), "files": len({function.path for function in functions}), "rooms": len(set(rooms)),
                "changes of room": sum(a != b for a, b in zip(rooms, rooms[1:]))}


class NotThisAttempt(Exception):
    """Another thread drove a device in this attempt."""


class Walk:
    def __init__(self, trace, symbols):
        self.trace, self.symbols = trace, symbols

    def frames(self, events, thread=None):
        return Frames(events, thread or self.trace.main, self.symbols)

    def way(self, events, begin, end):
        """What the main thread enters in events[begin:end]."""
        way = Way()
        for event in events[begin:end]:
            if event.thread == self.trace.main and event.kind == "enter":
                way.add(self.symbols.known.get(event.function))
        return way

    def first(self, frames, pattern, begin=0):
        found = frames.find(pattern, begin)
        if not found:
            raise NotThisAttempt(pattern.pattern)
        return found[0]

    def receiver(self, frames):
        """The product's function that calls the port driver's receive function."""
        burst = self.first(frames, RECEIVE_BURST)
        return [call for call in burst["around"] if call["function"] is not None][-2]

    def write(self, steps):
        post, responder, requester = (steps[name] for name in ("write: post", "write: responder", "write: requester"))
        ways = {"transmit": self.way(post, 0, self.first(self.frames(post), TRANSMIT_BURST)["begin"])}
        frames = self.frames(responder)
        receiver, request = self.receiver(frames), self.first(frames, ON_REQUEST)
        ways["turn, up to the port"] = self.way(responder, 0, receiver["begin"])
        ways["receive"] = self.way(responder, receiver["begin"], request["end"])
        ways["ACK"] = self.way(responder, request["end"], self.first(frames, TRANSMIT_BURST, request["end"])["begin"])
        receiver = self.receiver(self.frames(requester))
        ways["completion"] = self.way(requester, receiver["begin"], len(requester))
        ways["one WRITE"] = Way()
        for name in ("transmit", "turn, up to the port", "receive", "ACK", "completion"):
            ways["one WRITE"].add_all(ways[name])
        return ways

    def doorbell(self, steps):
        post, turn = steps["doorbell: post"], steps["doorbell: turn"]
        if self.frames(post).find(TRANSMIT_BURST):
            raise NotThisAttempt("the doorbell")
        way = self.way(post, 0, len(post))
        return {"transmit, by doorbell": way.add_all(self.way(turn, 0, self.first(self.frames(turn), TRANSMIT_BURST)["begin"]))}

    def fault(self, name, events):
        """From the access that misses to the end of the function that repeats it."""
        frames = self.frames(events)
        writes = frames.find(SESSION_WRITE)
        if len(writes) < 2 or len(frames.find(REQUEST_FAULT)) != 1:
            raise NotThisAttempt("one fault")
        miss, retry = writes[:2]
        request = next((call for call in reversed(miss["around"]) if ON_REQUEST.search(call["name"])), None)
        if request is None:
            raise NotThisAttempt("the miss")
        caller = next(call for call in reversed(retry["around"]) if call["function"] is not None)
        if caller["begin"] < request["end"]:
            return {name: self.way(events, miss["begin"], caller["end"])}
        poll = next((i for i, call in enumerate(retry["around"]) if CORE_POLL.search(call["name"])), None)
        if poll is None:
            raise NotThisAttempt("the retry")
        way = self.way(events, miss["begin"], request["end"])
        self.add_pager(way, events, miss["begin"], retry["begin"])
        way.add(retry["around"][poll]["function"])
        for function in self.way(events, retry["around"][poll + 1]["begin"], caller["end"]).functions.values():
            way.add(function)
        return {name: way}

    def add_pager(self, way, events, begin, end):
        for thread, name in self.trace.threads.items():
            if name != PAGER_THREAD:
                continue
            answers = [call for call in self.frames(events, thread).find(PAGER_ANSWERS, begin) if call["begin"] < end]
            last = answers[-1]["end"] if answers else end
            depth = 0
            for event in events[begin:last]:
                if event.thread != thread:
                    continue
                if event.kind == "leave":
                    if depth == 0:
                        way.add(self.symbols.known.get(event.function), name)  # the function in which the thread slept
                    depth = max(0, depth - 1)
                    continue
                if depth == 0:
                    way.add(self.symbols.known.get(self.symbols.start_of(event.call_site)), name)
                way.add(self.symbols.known.get(event.function), name)
                depth += 1

    def attempts(self):
        """The steps of each scenario, by the word before the colon."""
        taken = []
        for name, events in self.trace.steps:
            if name == "end":
                if taken:
                    yield taken
                taken = []
            else:
                taken.append((name, events))

    def all(self):
        """The ways of the attempts with the fewest functions: timers and other rare work are not part of a way."""
        ways, reasons = {}, collections.Counter()
        for taken in self.attempts():
            kind = taken[0][0].split(":")[0]
            try:
                if kind == "write":
                    found = self.write(dict(taken))
                elif kind == "doorbell":
                    found = self.doorbell(dict(taken))
                else:
                    found = self.fault(kind, [event for _, events in taken for event in events])
            except NotThisAttempt as reason:
                reasons[kind, str(reason)] += 1
                continue
            size = sum(len(way.functions) for way in found.values())
            if kind not in ways or size < ways[kind][0]:
                ways[kind] = (size, found)
        return {name: way for _, found in ways.values() for name, way in found.items()}, reasons


def build(tree):
    """Configures and builds the folder "way" of a tree; returns it."""
    flags = "[" + ",".join(f"'{flag}'" for flag in FLAGS) + "]"
    script = ('. scripts/common.sh; configure way -Dtests=true -Dbenchmarks=true -Doptimization=0 -Dwerror=false "-Dcpp_args=$1" >&2; '
              'compile tests/bench/way_trace >&2; printf "%s\\n" "$build_dir"')
    return pathlib.Path(subprocess.check_output(["bash", "-euc", script, "way", flags], cwd=tree, text=True).strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", default=str(ROOT), help="the checkout to measure")
    parser.add_argument("--no-build", metavar="FOLDER", help="use this build folder as it is")
    parser.add_argument("--json", metavar="FILE", help="write every way with its functions")
    parser.add_argument("--list", metavar="PART", help="print the functions of one part")
    arguments = parser.parse_args()
    tree = pathlib.Path(arguments.tree).resolve()
    folder = pathlib.Path(arguments.no_build).resolve() if arguments.no_build else build(tree)
    with tempfile.TemporaryDirectory(prefix="fl-") as temporary:
        recorded = os.path.join(temporary, "events")
        subprocess.run([folder / "tests/bench/way_trace", recorded], check=True, timeout=600)
        trace = Trace(recorded)
    symbols = Symbols(tree, trace.modules)
    symbols.resolve(trace.places(symbols))
    ways, reasons = Walk(trace, symbols).all()
    expected = ("one WRITE", "transmit, by doorbell", "short fault", "pager fault")
    missing = [name for name in expected if name not in ways]
    if missing:
        sys.exit(f"way.py: no attempt shows {', '.join(missing)}: {dict(reasons)}")
    if arguments.list and arguments.list not in ways:
        sys.exit(f"way.py: no part is named {arguments.list}; the parts: {', '.join(ways)}")
    if arguments.list:
        for function in ways[arguments.list].in_order(False):
            print(f"{function.body_lines:4}  {function.path}:{function.line}  {function.name}")
        return
    if arguments.json:
        result = {name: {"all": way.counts(False), "long": way.counts(True), "threads": way.threads,
                         "in order": [function.describe() for function in way.in_order(False)]} for name, way in ways.items()}
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    print("| way | functions | files | changes of room | thread hops | functions of 5 lines and more | files | changes of room |")
    print("|---|---|---|---|---|---|---|---|")
    for name, way in ways.items():
        every, long = way.counts(False), way.counts(True)
        cells = [every["functions"], every["files"], every["changes of room"], len(way.threads) - 1,
                 long["functions"], long["files"], long["changes of room"]]
        print(f"| {name} | " + " | ".join(str(cell) for cell in cells) + " |")


if __name__ == "__main__":
    main()
