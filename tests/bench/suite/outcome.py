# SPDX-License-Identifier: BSD-3-Clause
"""Results of a measurement other than figures."""


class Unavailable(Exception):
    """The measurement is not possible on this machine; has the reason. Reported as skipped."""


class RunFailed(Exception):
    """The measurement failed; has the error. The suite continues and exits with an error."""


class Interrupted(SystemExit):
    """A signal requested the end: everything that was started is ended during clean-up."""
