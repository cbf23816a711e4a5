#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The drop-in library as a loader sees it: its name; every symbol in its version, and no others (the test interposed-names has those of the
# C library, which have none). Each way in which programs look for rdma-core's library finds it. Providers that need its private symbols load.
#   abi_test.sh LIBIBVERBS
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
library=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
need readelf python3

grep -q 'SONAME.*\[libibverbs\.so\.1\]' < <(readelf -dW "$library") || fail "the SONAME"
symbols=$(readelf -W --dyn-syms "$library" | awk '$1 ~ /^[0-9]+:$/ && $7 != "UND" && $7 != "ABS" && $8 ~ /@|^faultline_/ { print $8 }' | LC_ALL=C sort)
grep -v '[^@]@IBVERBS_PRIVATE_' <<<"$symbols" | diff <(grep -v '^#' "$here/abi_symbols.txt") - ||
  fail "expected symbols (<) are not those exported (>)"
echo "ok: symbols"

# private_names VERSION: the names in it; a provider's constructor calls the one with the number.
private_names() { sed -n "s/@*@IBVERBS_PRIVATE_$1$//p" <<<"$symbols" | sed "s/^verbs_register_driver_$1$/verbs_register_driver_N/"; }
for version in 25 33 57 58 59 60 61 62 63 64 65; do
  diff <(private_names 34) <(private_names "$version") || fail "private names of version $version (>)"
done
echo "ok: each private version has each private name"

# Without LD_PRELOAD, as late as possible: its thread-local data needs no static TLS of the program's start.
if grep -q STATIC_TLS < <(readelf -dW "$library"); then fail "it has thread-local data of the initial-exec kind"; fi
bounded python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]).ibv_fork_init()' "$library"
echo "ok: loaded late"

LD_PRELOAD=$library bounded python3 - "$here/abi_symbols.txt" <<'PYTHON'
import ctypes, os, sys

def mapped(name):
    with open('/proc/self/maps') as maps:
        return {line.split()[-1] for line in maps if os.path.basename(line.split()[-1]).startswith(name)}

libc = ctypes.CDLL(None)
libc.dlvsym.restype = libc.dlsym.restype = ctypes.c_void_p
libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
late = ctypes.CDLL('libibverbs.so.1')  # as UCX opens it
assert len(mapped('libibverbs.so')) == 1, mapped('libibverbs.so')
for line in open(sys.argv[1]):
    if '@@' not in line: continue
    name, version = line.strip().split('@@')
    assert libc.dlvsym(late._handle, name.encode(), version.encode()), line
print('ok: dlopen and dlvsym')

DEEPBIND = 8
for provider in ('libmlx5.so.1', 'libmlx4.so.1', 'libefa.so.1', 'librdmacm.so.1'):
    try:
        ctypes.CDLL(provider, mode=os.RTLD_NOW | DEEPBIND)
    except OSError as error:
        assert 'No such file' in str(error), error
        print('not installed:', provider)
assert len(mapped('libibverbs.so')) == 1, mapped('libibverbs.so')
print('ok: providers load')
PYTHON
