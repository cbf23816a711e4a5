# SPDX-License-Identifier: BSD-3-Clause
"""The constants of verbs and rdma_cm by their names, with each pyverbs: newer ones (rdma-core 65) have them in classes."""
import enum

try:
    from pyverbs.cm_enums import *  # noqa: F401,F403
    from pyverbs.enums import *  # noqa: F401,F403
except ImportError:
    import pyverbs.libibverbs_enums
    import pyverbs.librdmacm_enums

    for module in (pyverbs.libibverbs_enums, pyverbs.librdmacm_enums):
        for part in list(vars(module).values()):
            if isinstance(part, type) and issubclass(part, enum.Enum):
                globals().update(part.__members__)
