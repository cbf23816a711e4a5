# SPDX-License-Identifier: BSD-3-Clause
"""What `scripts/bench` runs: one plan, interleaved and repeated, into one JSON file, a table and plots."""
