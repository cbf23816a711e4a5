# SPDX-License-Identifier: BSD-3-Clause
"""The plots of a run as SVG."""
