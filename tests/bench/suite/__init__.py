# SPDX-License-Identifier: BSD-3-Clause
"""The measurements of `scripts/bench`: one plan, interleaved and repeated, with one JSON file, a table and plots as its result."""
