#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rdma-core's own test suite (Debian's pyverbs), unmodified, compared with the expected result of each test (pyverbs_expected.tsv). All of it,
# on one device, on a ring, as any user:
#   pyverbs_test.sh LIBIBVERBS ring [RESULTS]
# A device delivers what it sends to itself without its port, so that another port changes few of the tests. Only these run elsewhere:
# those of the device's properties and addresses; the rdma_cm tests, where two processes share a device; and see below.
# share: as root on a wire whose device's address is an interface's as well, in a network namespace. The rdma_cm tests fork two processes, from
# one whose engine has run, that share its device. udp: on the interface's address by UDP sockets, as Debian's nobody without a capability;
# a second process cannot have the address. udp-share: on a wire whose switch has it.
#   pyverbs_test.sh FAULTLINE_RUN share|udp|udp-share [RESULTS]
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
subject=$(realpath "$1")
kind=$2
results=${3:-}
here=$(dirname "$(realpath "$0")")
# Only as a preloaded library: as a dependency it would be loaded too late to precede the C library's names.
unset LD_LIBRARY_PATH
python=/usr/bin/python3 # Debian's, which has the package
packed=/usr/share/doc/rdma-core/tests
"$python" -c 'import pyverbs.device' 2>/dev/null || skip "python3-pyverbs is not installed"
[ -e "$packed/run_tests.py" ] || skip "rdma-core's test suite is not installed ($packed)"

own_runtime_folder
mkdir "$folder/tests"
cp "$packed"/* "$folder/tests/"
gunzip "$folder"/tests/*.gz
[ -n "$results" ] || results=$folder/results.tsv

# Four tests need a huge page of their own. If allowed, the script reserves them for the duration of the test: they are the machine's, so the
# last of such scripts that run at the same time gives them back.
huge_pages=/proc/sys/vm/nr_hugepages
give_back_huge_pages() {
  if flock --nonblock --exclusive 9 && [ -s "$huge_lock" ]; then echo 0 >"$huge_pages" && : >"$huge_lock"; fi
}
huge_lock=/run/faultline-test-huge-pages
if [ -w "$huge_pages" ] && { exec 9>>"$huge_lock"; } 2>/dev/null; then
  flock --shared 9
  if [ "$(cat "$huge_pages")" -eq 0 ] && echo 8 >"$huge_pages"; then echo reserved >&9; fi
  on_exit give_back_huge_pages
fi

in_space=()
as_user=()
only=
if [ "$kind" != ring ]; then
  need_root
  need ip
  new_namespace space
  in_space=(ip netns exec "$space")
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
share)
  # QPs at a shared address are found among the device's own ones first: of each transport and operation.
  only=AHTest,CMTestCase,DeviceTest,QpExTestCase
  run_on=("$subject" --wire pyverbs --share --ip 198.18.0.1 --)
  ;;
udp)
  # Memory is registered without a capability.
  only=AHTest,DeviceTest,MRTest,OdpTestCase
  run_suite=$folder/bin/pyverbs_run.py
  run_on=("$subject" --udp --ip 198.18.0.1 --)
  ;;
udp-share)
  only=AHTest,CMTestCase,DeviceTest
  run_suite=$folder/bin/pyverbs_run.py
  start switch "${in_space[@]}" "${as_user[@]}" "$folder/bin/faultline-switch" --wire pyverbs --uplink udp:198.18.0.1
  watch=$started await_that [ -e "$folder/user/faultline/pyverbs.control" ]
  run_on=("$subject" --wire pyverbs --share --ip 198.18.0.1 --)
  ;;
ring)
  printf '[[device]]\nname = "faultline0"\nip = "198.18.0.1/24"\n[device.port]\nkind = "ring"\nwire = "w0"\nside = "a"\n' \
    >"$folder/device.toml"
  run_on=(env FAULTLINE_CONFIG="$folder/device.toml" LD_PRELOAD="$subject")
  ;;
esac

# The suite creates files in its working directory.
status=0
(cd "$folder" && bounded "${in_space[@]}" "${as_user[@]}" "${run_on[@]}" \
  "$python" "$run_suite" "$folder/tests" "$results" ${only:+--only "$only"} --dev faultline0) >"$folder/suite.out" 2>&1 9>&- || status=$?
"$python" "$here/pyverbs_check.py" "$here/pyverbs_expected.tsv" "$results" "$kind" ${only:+"$only"} || checked=$?
if [ "$status" -ne 0 ] || [ "${checked:-0}" -ne 0 ]; then
  tail -n 60 "$folder/suite.out"
  fail "the suite ended with $status"
fi
