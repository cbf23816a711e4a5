# SPDX-License-Identifier: BSD-3-Clause
"""The notation of a metric, and which direction is better."""
_FORMS = {
    "messages_per_second": (1e-6, "M/s"),
    "packets_per_second": (1e-6, "M packets/s"),
    "gb_per_second": (1, "GB/s"),
    "cpu_share": (100, "% of a CPU"),
    "cpu_ns": (1, "ns"),
    "to_pinned": (1, ""),
    "to_one_pair": (1, ""),
    "least_gb_per_second": (1, "GB/s"),
    "cpu_ms": (1, "ms in 10 s"),
    "connect_seconds": (1, "s"),
    "seconds": (1, "s"),
    "resident_mib": (1, "MiB"),
    "pss_mib": (1, "MiB"),
}


def form_of(metric):
    """(scale, unit)"""
    return _FORMS[metric] if metric in _FORMS else (1, "us")


def more_is_better(metric):
    return metric.endswith("_per_second") or metric.startswith("to_")


def rounded(number):
    """Three significant digits."""
    if number == 0:
        return "0"
    digits = 3
    size = abs(number)
    while size >= 10 and digits > 1:
        size /= 10
        digits -= 1
    while size < 1 and digits < 6:
        size *= 10
        digits += 1
    return f"{number:,.{max(0, digits - 1)}f}"


def written(number, metric):
    scale, unit = form_of(metric)
    return f"{rounded(number * scale)} {unit}".rstrip()
