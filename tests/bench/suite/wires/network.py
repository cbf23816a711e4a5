# SPDX-License-Identifier: BSD-3-Clause
"""A wire of this suite, with a name of its own and a folder that no other program uses."""
import contextlib
import itertools
import os
import shutil

from ..outcome import Unavailable
from ..processes import Child, on_cpu

_numbers = itertools.count()


class Wire:
    def __init__(self, context, name, switch):
        self.cpus = context.cpus
        self.both_cpus = both_cpus(context)
        self.environment = environment(context)
        self.switch = switch
        self._run = os.path.join(context.build, "apps", "faultline-run")
        self._name = name

    def command(self, words, *options):
        return [self._run, "--wire", self._name, *options, "--", *words]

    def on_side(self, side, words):
        """The command of a program on the CPU of side 0 or 1."""
        return on_cpu(self.cpus[side], self.command(words))

    def on_both_cpus(self, words):
        """The command of a program whose threads may run on either CPU."""
        return on_cpu(self.both_cpus, self.command(words))


def environment(context):
    return {"XDG_RUNTIME_DIR": context.folder}


def both_cpus(context):
    return ",".join(str(cpu) for cpu in sorted(set(context.cpus)))


@contextlib.contextmanager
def wire(context, *programs):
    """A wire for these programs, which have to be installed. Its end is the end of the switch."""
    for program in programs:
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not installed")
    apps = os.path.join(context.build, "apps")
    for program in (f"{apps}/faultline-run", f"{apps}/faultline-switch", f"{context.build}/stack/abi/libibverbs.so.1"):
        if not os.access(program, os.R_OK):
            raise Unavailable(f"{os.path.basename(program)} is not built")
    name = f"{context.tag}-w{next(_numbers)}"
    # Started here: a program that starts the switch would bind it to its own CPU.
    with Child(on_cpu(both_cpus(context), [f"{apps}/faultline-switch", "--wire", name]), environment(context)) as switch:
        switch.wait_for(lambda: os.path.exists(f"{context.folder}/faultline/{name}.control"), "its socket")
        yield Wire(context, name, switch)
