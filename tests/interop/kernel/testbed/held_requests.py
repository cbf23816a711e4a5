# SPDX-License-Identifier: BSD-3-Clause
"""A wire that holds connection requests to the kernel until a program there listens.

perftest's server listens again between its exchange with the client and the measurement. In an emulated machine this takes longer than
a client over Faultline takes to connect, so the client would be rejected. Between machines of equal speed the server is ready first."""
import threading
import time

from guest.guest import HANG_S
from testbed.frame_filter import FrameFilter

SEND_OF_UD, CM_QPN, CM_CLASS = 0x64, 1, 7
REQUESTS = (0x0010, 0x0017)  # REQ, SIDR_REQ
# The MAD's base and class are followed by version, method, status and transaction.
MAD_AT, CLASS_AT, TRANSACTION_AT, ATTRIBUTE_AT = 12 + 8, 1, 8, 16


class HeldRequests(FrameFilter):
    """A context manager, for the time of one pair of programs; listeners returns what cm_listeners() of the kernel's place does."""

    def __init__(self, testbed, listeners):
        super().__init__(testbed)
        self.listeners = listeners
        # The transaction of the exchange, and the numbers of the identifiers that listened then.
        self.exchange, self.first = None, set()
        self.one_at_a_time = threading.Lock()
        self.waiting = []
        self.over = threading.Event()

    def __exit__(self, *_):
        self.over.set()
        for thread in self.waiting:
            thread.join()
        super().__exit__()
        self.testbed.ip("link", "del", "fl-far")
        self.testbed.ip("link", "set", "fl-link", "master", "fl-bridge")

    def _is_dropped(self, to, frame):
        if to != "kernel" or not self._is_request(frame):
            return super()._is_dropped(to, frame)
        self.waiting.append(threading.Thread(target=self._hold, args=(to, frame), daemon=True))
        self.waiting[-1].start()
        return True

    @staticmethod
    def _is_request(frame):
        # IPv4 only.
        bth = 14 + 20 + 8
        mad = bth + MAD_AT
        return (frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\x12\xb7" and len(frame) > mad + 24
                and frame[bth] == SEND_OF_UD and int.from_bytes(frame[bth + 5:bth + 8], "big") == CM_QPN
                and frame[mad + CLASS_AT] == CM_CLASS
                and int.from_bytes(frame[mad + ATTRIBUTE_AT:mad + ATTRIBUTE_AT + 2], "big") in REQUESTS)

    def _hold(self, to, frame):
        """The first request is for the listener that is there, later ones for the next listener, whose identifier has another number."""
        at = 14 + 20 + 8 + MAD_AT + TRANSACTION_AT
        transaction = bytes(frame[at:at + 8])
        with self.one_at_a_time:
            self.exchange = self.exchange or transaction
        until = time.monotonic() + HANG_S
        while not self.over.is_set() and time.monotonic() < until:
            with self.one_at_a_time:
                numbers = {one["cm-idn"] for one in self.listeners()}
                if transaction == self.exchange:
                    self.first = self.first or numbers
                    ready = bool(numbers)
                else:
                    ready = bool(numbers - self.first)
            if ready:
                self.send(to, frame)
                return
            self.over.wait(0.2)
