#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# docs/counters.md is what the tables of counters say.  counter_page_test.sh PROGRAM PAGE
"$1" | diff -u "$2" - && exit 0
echo "FAILED: docs/counters.md is not what the tables say; write it: $1 > $2"
exit 1
