#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The environment is read by secure_getenv(3) alone, in the sources and in what is linked: a program with raised rights
# must not do what its caller's variables say.
#   environment_names_test.sh SOURCES LIBRARY...
set -euo pipefail
sources=$1
shift
status=0
if grep -rnE '(^|[^_[:alnum:]])(std::)?getenv[[:space:]]*\(' --include='*.[ch]pp' --include='*.[ch]' \
  "$sources"/stack "$sources"/odp "$sources"/pmd_glue "$sources"/apps/switch | grep -v __wrap_getenv; then
  echo "FAILED: getenv: use secure_getenv"
  status=1
fi
for file in "$@"; do
  # Read whole: grep -q may end before nm has written all, which pipefail would take for a failure.
  names=$(nm -D --undefined-only "$file")
  if grep -E '\b(getenv|__secure_getenv)\b' <<<"$names"; then
    echo "FAILED: $file reads the environment by getenv: see pmd_glue/eal/own_environment.cpp"
    status=1
  fi
  grep -q '\bsecure_getenv\b' <<<"$names" || { echo "FAILED: $file: nm shows no secure_getenv at all"; status=1; }
done
exit $status
