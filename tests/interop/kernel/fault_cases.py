# SPDX-License-Identifier: BSD-3-Clause
"""The requests for pages that are not resident: known to the lane and to the programs at both ends."""

BURST = 16
PAGE_BYTES = 4096
# The result of rxe with on-demand regions (__rxe_odp_mr_copy of Linux 7.3 ignores the offset in a page), if it is as predicted.
MISPLACED = "rxe reports success, and takes the start of an on-demand page for its middle"
# Name, bytes. writes, reads: BURST requests posted at once, a page each.
OPERATIONS = {
    "few": (("send", 65536), ("write", 65536), ("read", 65536), ("cas", 8), ("faa", 8)),
    "data": (("send", 65536), ("write", 5000), ("read", 65536)),
    "all": (("send", 1), ("send", 65536), ("send", 1 << 20), ("send_imm", 5000), ("write", 1), ("write", 5000), ("write", 65536),
            ("write", 1 << 20), ("write_imm", 65536), ("read", 1), ("read", 5000), ("read", 65536), ("read", 1 << 20), ("cas", 8),
            ("faa", 8), ("atomic_write", 8), ("writes", BURST * PAGE_BYTES), ("reads", BURST * PAGE_BYTES)),
}
# After an RNR NAK: its req_retry sets the address for READ, WRITE and the atomics only. The responder answers with NAK 2.
FORGOTTEN = "rxe sends an ATOMIC WRITE again with address 0 in its RETH (IBV_WC_REM_ACCESS_ERR)"


def cases(kinds, operations):
    """Kind of pages, operation, bytes, number."""
    for kind in kinds:
        for number, (name, length) in enumerate(OPERATIONS[operations]):
            yield kind, name, length, number


def case_name(kind, name, length):
    return f"{name} of {length} bytes, {kind} pages"
