# SPDX-License-Identifier: BSD-3-Clause
"""Message sizes, as in names and options: 64, 4k, 8m."""
UNITS = {"k": 1 << 10, "m": 1 << 20}


def bytes_of(label):
    return int(label[:-1]) * UNITS[label[-1]] if label[-1] in UNITS else int(label)


def label_of(size_bytes):
    for unit, bytes_each in sorted(UNITS.items(), key=lambda item: -item[1]):
        if size_bytes >= bytes_each and size_bytes % bytes_each == 0:
            return f"{size_bytes // bytes_each}{unit}"
    return str(size_bytes)
