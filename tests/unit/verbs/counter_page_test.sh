#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A page of docs/ equals what a program makes of the tables in the code.  counter_page_test.sh PROGRAM PAGE
"$1" | diff -u "$2" - && exit 0
echo "FAILED: $2 differs from the tables; write it: $1 > $2"
exit 1
