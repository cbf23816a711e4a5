#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests of dma-bufs on the kernel peer's Linux, which exports them (udmabuf, the system heap), in an emulated machine: our own, and those of
# rdma-core's pyverbs, unmodified, whose buffers of a graphics processor are udmabufs (render_node.c).
#   dma_buf.sh INIT RENDER_NODE BUILD_DIRECTORY
# If QEMU or the kernel's package cannot be had, the script prints a line and exits with status 77.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/interop/kernel/guest/tests_in_guest.sh
. "$here/tests_in_guest.sh"

init=$1
render_node=$2
build=$3
library_dir=usr/lib/x86_64-linux-gnu

need_tools cpio
image=$("$here/image.sh")
run_in_guest "$image/vmlinuz" "$init" "$build" tests/unit/verbs/verbs_dma_buf 'tests/unit/verbs/verbs_unit --gtest_filter=DeviceMemory*'
for exporter in memfd udmabuf heap; do
  grep -aq "OK .*/$exporter " "${folder:?}/output" || {
    echo "FAILED: no test ran on a dma-buf of $exporter"
    exit 1
  }
done

# The peer's file system, with its own pyverbs, and in it this build in the layout that faultline-run knows.
overlay=$folder/overlay
ours=$overlay/faultline
mkdir -p "$ours"/{apps,stack/abi} "$overlay/$library_dir"
cp -L "$build"/apps/faultline-{run,switch} "$ours/apps/"
cp -L "$build/stack/abi/libibverbs.so.1" "$ours/stack/abi/"
cp "$render_node" "$ours/render_node.so"
cp "$here/../../../conformance/pyverbs_run.py" "$here/pyverbs_dma_buf.py" "$ours/"
cp "$init" "$overlay/init"
cpio --quiet -t <"$image/initrd" >"$folder/files"
while read -r library; do
  # A library that the peer has is newer, and its programs need it.
  grep -q "/$(basename "$library")$" "$folder/files" || cp -L -n "$library" "$overlay/$library_dir/"
done < <(ldd "$build"/apps/faultline-{run,switch} "$build/stack/abi/libibverbs.so.1" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u)
cat >"$ours/pyverbs.sh" <<'END'
#!/bin/sh
export PATH=/usr/sbin:/usr/bin XDG_RUNTIME_DIR=/tmp
/faultline/apps/faultline-run --wire dma -- sh -c 'LD_PRELOAD=/faultline/render_node.so:$LD_PRELOAD exec python3 -B \
  /faultline/pyverbs_dma_buf.py /usr/share/rdma-core/tests /tmp/results --dev faultline0'
while read -r line; do echo "result: $line"; done </tmp/results
END
chmod +x "$ours/pyverbs.sh"
echo /faultline/pyverbs.sh >"$overlay/tests"
pack "$overlay" "$folder/overlay.initrd"
cat "$image/initrd" "$folder/overlay.initrd" >"$folder/initrd"
boot_guest "$image/vmlinuz" "$folder/initrd"
results=$(grep -a '^result: tests[.]' "$folder/output" || true)
printf '%s\n' "$results"
passed=$(grep -c "DmaBuf.*$(printf '\t')pass" <<<"$results" || true)
# All of the two classes in rdma-core 56.
if [ "$passed" -lt 10 ] || grep -q "$(printf '\t')\(fail\|error\)" <<<"$results"; then
  tail -n 40 "$folder/output"
  echo "FAILED: of pyverbs' tests of dma-bufs, $passed passed"
  exit 1
fi
echo "ok: pyverbs: $passed tests of dma-bufs passed"
