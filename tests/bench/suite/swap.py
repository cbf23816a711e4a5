# SPDX-License-Identifier: BSD-3-Clause
"""The time that a page in compressed swap adds to a WRITE: tests/bench/odp_swap_latency, on a zram device of its own."""
import json
import os

from .outcome import RunFailed, Unavailable
from .processes import Child

SKIPPED = 77
ZRAM_MIB = "256"


def measure(context, laps):
    program = os.path.join(context.build, "tests", "bench", "odp_swap_latency")
    if not os.access(program, os.X_OK):
        raise Unavailable("odp_swap_latency is not built")
    with_zram = os.path.join(context.root, "tests", "interop", "e2e", "with_zram.sh")
    with Child([with_zram, ZRAM_MIB, program, "--laps", str(laps)], {"TMPDIR": context.folder}) as child:
        try:
            output = child.finish(context.limit_s)
        except RunFailed:
            if child.process.poll() == SKIPPED:
                raise Unavailable(child.last_words().removeprefix("SKIPPED: ")) from None
            raise
    run = json.loads(output.splitlines()[-1])
    figures = {
        "swap/write/64": {**{f"added_{rank}_us": run["added_us"][rank] for rank in ("p50", "p99")},
                          "beyond_populate_p50_us": run["added_us"]["p50"] - run["populate_us"]["p50"]},
        "swap/populate": {f"{rank}_us": run["populate_us"][rank] for rank in ("p50", "p99")},
    }
    return figures, {"swap/write/64": {"pages": run["pages"], "timeouts": run["timeouts"]}}
