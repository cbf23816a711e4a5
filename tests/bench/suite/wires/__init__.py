# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs over a wire: perftest, UCX and Open MPI as Debian ships them, started by faultline-run."""
