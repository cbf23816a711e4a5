# SPDX-License-Identifier: BSD-3-Clause
"""A lane whose guest ended by itself runs once more, with a new guest."""
import os
import sys
import traceback

from guest import guest

SECOND = "FAULTLINE_SECOND_GUEST"
SKIPPED, TERMINATED = 77, 143


def run_lane(main):
    """Runs main(), which ends by sys.exit() or an exception, and ends the program. A kernel under software emulation may panic at any
    time: an emulated CPU may execute an int3 that the kernel has replaced already. A second guest that ends, too, fails the lane."""
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status == 1 and end.code != 1:
            print(end.code, file=sys.stderr)
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc()
        status = 1
    for name, console in guest.ended_by_themselves:
        print(f"{name}: the guest ended by itself: {console}", flush=True)
    if guest.ended_by_themselves and status not in (0, SKIPPED, TERMINATED) and SECOND not in os.environ:
        print("once more, with a new guest", flush=True)
        os.environ[SECOND] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    sys.exit(status)
