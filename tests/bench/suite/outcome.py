# SPDX-License-Identifier: BSD-3-Clause
"""How a measurement can end other than with figures."""


class Unavailable(Exception):
    """It cannot be had on this machine; says why. Told as skipped."""


class RunFailed(Exception):
    """It should have worked; says what went wrong. The suite goes on and ends with an error."""


class Interrupted(SystemExit):
    """A signal asked for the end: everything that was started is ended on the way out."""
