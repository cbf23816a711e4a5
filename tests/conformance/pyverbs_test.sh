#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rdma-core's own test suite (Debian's pyverbs), unmodified, on one device in loopback, compared with the expected result of each test
# (pyverbs_expected.tsv). On a ring, as any user; or as root on a wire whose device's address is an interface's as well, in a network
# namespace. There the suite's rdma_cm tests run too. They fork, from a process whose engine has run, two processes that share its device.
#   pyverbs_test.sh LIBIBVERBS ring [RESULTS]
#   pyverbs_test.sh FAULTLINE_RUN share [RESULTS]
# Or on the interface's address by UDP sockets, as Debian's nobody without a capability: as the port of the device, without the tests that fork,
# since a second process cannot have the address; or on a wire whose switch has it.
#   pyverbs_test.sh FAULTLINE_RUN udp|udp-share [RESULTS]
set -euo pipefail
subject=$(realpath "$1")
kind=$2
results=${3:-}
here=$(dirname "$(realpath "$0")")
# Only as a preloaded library: as a dependency it would be loaded too late to precede the C library's names.
unset LD_LIBRARY_PATH
skip() { echo "SKIPPED: $*"; exit 77; }
python=/usr/bin/python3 # Debian's, which has the package
packed=/usr/share/doc/rdma-core/tests
"$python" -c 'import pyverbs.device' 2>/dev/null || skip "python3-pyverbs is not installed"
[ -e "$packed/run_tests.py" ] || skip "rdma-core's test suite is not installed ($packed)"

folder=$(mktemp -d)
space=fl-pyverbs-$$
huge_pages=/proc/sys/vm/nr_hugepages
huge_before=
cleanup() {
  [ -z "$huge_before" ] || echo "$huge_before" >"$huge_pages"
  [ -z "${switch_pid:-}" ] || kill "$switch_pid" 2>/dev/null || true
  ip netns del "$space" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT
mkdir "$folder/tests"
cp "$packed"/* "$folder/tests/"
gunzip "$folder"/tests/*.gz
[ -n "$results" ] || results=$folder/results.tsv

# Four tests need a huge page of their own. If allowed, the script reserves them for the duration of the test.
if [ "$(cat "$huge_pages")" -eq 0 ] && [ -w "$huge_pages" ]; then
  huge_before=0
  echo 8 >"$huge_pages" || huge_before=
fi

in_space=()
as_user=()
without=()
switch_pid=
if [ "$kind" != ring ]; then
  [ "$(id -u)" -eq 0 ] || skip "needs root for network namespaces"
  command -v ip >/dev/null || skip "ip is not installed"
  ip netns add "$space" 2>/dev/null || skip "may not create network namespaces"
  in_space=(ip netns exec "$space")
  ip -n "$space" link set lo up
  ip -n "$space" link add fl-own mtu 4500 type veth peer name fl-peer mtu 4500
  ip -n "$space" addr add 198.18.0.1/24 dev fl-own
  ip -n "$space" link set fl-own up
  ip -n "$space" link set fl-peer up
fi
if [[ "$kind" = udp* ]]; then
  # As Debian's nobody, with what that user may read and write.
  user=65534
  mkdir "$folder/bin" "$folder/stack" "$folder/stack/abi"
  cp "$subject" "$(dirname "$subject")/faultline-switch" "$here/pyverbs_run.py" "$folder/bin/"
  cp "$(dirname "$subject")/../stack/abi/libibverbs.so.1" "$folder/stack/abi/"
  subject=$folder/bin/$(basename "$subject")
  chmod -R a+rX "$folder"
  mkdir -m 700 "$folder/user"
  results=$folder/user/results.tsv
  chown "$user" "$folder" "$folder/user"
  export HOME=$folder XDG_RUNTIME_DIR=$folder/user
  as_user=(setpriv "--reuid=$user" "--regid=$user" --clear-groups --bounding-set=-all --inh-caps=-all)
fi
run_suite=$here/pyverbs_run.py
case "$kind" in
share) start=("$subject" --wire "pyverbs-$$" --share --ip 198.18.0.1 --) ;;
udp)
  run_suite=$folder/bin/pyverbs_run.py
  start=("$subject" --udp --ip 198.18.0.1 --)
  without=(--without CMTestCase)
  ;;
udp-share)
  run_suite=$folder/bin/pyverbs_run.py
  "${in_space[@]}" "${as_user[@]}" "$folder/bin/faultline-switch" --wire "pyverbs-$$" --uplink udp:198.18.0.1 >"$folder/switch.out" 2>&1 &
  switch_pid=$!
  for _ in $(seq 200); do
    [ ! -e "$folder/user/faultline/pyverbs-$$.control" ] || break
    kill -0 "$switch_pid" 2>/dev/null || { echo "FAILED: the switch ended"; cat "$folder/switch.out"; exit 1; }
    sleep 0.05
  done
  start=("$subject" --wire "pyverbs-$$" --share --ip 198.18.0.1 --)
  ;;
ring)
  printf '[[device]]\nname = "faultline0"\nip = "198.18.0.1/24"\n[device.port]\nkind = "ring"\nwire = "w0"\nside = "a"\n' \
    >"$folder/device.toml"
  start=(env FAULTLINE_CONFIG="$folder/device.toml" LD_PRELOAD="$subject")
  ;;
esac

# The suite creates files in its working directory.
status=0
(cd "$folder" && "${in_space[@]}" "${as_user[@]}" timeout 280 "${start[@]}" \
  "$python" "$run_suite" "$folder/tests" "$results" "${without[@]}" --dev faultline0) >"$folder/output" 2>&1 || status=$?
"$python" "$here/pyverbs_check.py" "$here/pyverbs_expected.tsv" "$results" "$kind" || {
  echo "FAILED: the suite ended with $status"
  tail -n 60 "$folder/output"
  exit 1
}
[ "$status" -eq 0 ] || { echo "FAILED: the suite ended with $status"; tail -n 60 "$folder/output"; exit 1; }
